package enforce_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// TestLinks checks that nothing in an answer leads past the gateway, and that no link is another token's.
func TestLinks(t *testing.T) {
	t.Parallel()
	other := patientA
	other.Patient = "b"
	for _, h := range []access.Holder{patientA, clinician, {Scope: "user/Observation.rs", User: clinician.User}} {
		for _, target := range []string{"Observation?_count=2", "?_type=Observation&_count=2", "Observation/o01/_history?_count=1", "Observation?_count=2&_sort=date"} {
			if strings.HasPrefix(target, "?") && h.Scope == "user/Observation.rs" {
				continue
			}
			t.Run(h.Scope+" "+target, func(t *testing.T) {
				g := newGateway(t, ward()...)
				g.server.Put(`{"resourceType":"Observation","id":"o01","status":"final","subject":{"reference":"Patient/a"}}`)
				response := g.get(h, target)
				text, _ := io.ReadAll(response.Body)
				var b bundle
				if err := json.Unmarshal(text, &b); err != nil || b.next() == "" {
					t.Fatalf("%s, %v", text, err)
				}
				if h.Patient != "" && strings.Contains(string(text), "backend.internal") || strings.Contains(string(text), "_getpages") {
					t.Errorf("names the backend: %s", text)
				}
				for _, l := range b.Link {
					if !strings.HasPrefix(l.URL, g.BaseURL) || l.Relation != "self" && l.Relation != "next" {
						t.Errorf("link %s", l)
					}
				}
				if got := g.get(other, b.next()).StatusCode; got != http.StatusNotFound {
					t.Errorf("another's page: status %d", got)
				}
				if got := g.get(h, strings.Replace(b.next(), "/_page/", "/_page/0", 1)).StatusCode; got != http.StatusNotFound {
					t.Errorf("a changed link: status %d", got)
				}
				if got := g.get(h, b.next()).StatusCode; got != http.StatusOK {
					t.Errorf("the page: status %d", got)
				}
			})
		}
	}
}

func TestSelf(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"Observation?status=final&_count=3":                   "Observation?status=final&_count=3",
		"Observation?_elements=status&status=final":           "Observation?status=final",
		"Observation?subject:Patient.name=adams":              "Observation?subject%3APatient.name=adams",
		"Patient/a/Observation?status=final":                  "Patient/a/Observation?status=final",
		"?_type=Patient":                                      "?_type=Patient",
		"Patient?_has:Observation:subject:status=preliminary": "Patient?_has%3AObservation%3Asubject%3Astatus=preliminary",
	} {
		g := newGateway(t, ward()...)
		var b bundle
		if err := json.NewDecoder(g.get(patientA, target).Body).Decode(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.Link[0].URL; got != g.BaseURL+"/"+want && got != g.BaseURL+want {
			t.Errorf("%s: got %s", target, got)
		}
	}
}

// TestLongSearch checks that links stay short and no page is lost, however long the search is, whether its pages are judged
// or pass.
func TestLongSearch(t *testing.T) {
	t.Parallel()
	var ids []string
	for n := range 60 {
		ids = append(ids, fmt.Sprintf("o%02d", n))
	}
	search := "_count=5&_id=" + strings.Join(ids, ",") + ",none" + strings.Repeat("x", 5000)
	repeating := func(g *gateway) message.NextHandler { // the server's links repeat the search
		return handling(func(w http.ResponseWriter, r *http.Request) error {
			recorder := httptest.NewRecorder()
			err := g.server.ServeHTTP(recorder, r)
			maps.Copy(w.Header(), recorder.Header())
			_, _ = w.Write([]byte(strings.ReplaceAll(recorder.Body.String(), "?_getpages=", "?x="+strings.Repeat("x", 5000)+"&_getpages=")))
			return err
		})
	}
	for _, tt := range []struct {
		name          string
		holder        access.Holder
		byCompartment bool
		form          bool
		want          int
	}{
		{"one branch", patientA, true, true, 55},
		{"several branches", patientA, false, true, 55},
		{"several branches, by GET", patientA, false, false, 55},
		{"passes", access.Holder{Scope: "system/*.rs"}, false, false, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, ward()...)
			g.CompartmentSearch = tt.byCompartment
			g.next = repeating(g)
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation?"+search, nil)
			if tt.form {
				r = httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation/_search", strings.NewReader(search))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			var b bundle
			response := g.send(tt.holder, r)
			if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK || b.next() == "" || len(b.next()) > 2000 {
				t.Fatalf("status %d, a link of %d bytes, %v", response.StatusCode, len(b.next()), err)
			}
			if rest := g.read(tt.holder, b.next(), 5); len(b.Entry) != 5 || len(rest) != tt.want-5 {
				t.Errorf("%d, and %d more", len(b.Entry), len(rest))
			}
		})
	}
	g := newGateway(t, ward()...)
	var b bundle
	if err := json.NewDecoder(g.get(patientA, "Observation?"+search).Body).Decode(&b); err != nil {
		t.Fatal(err)
	}
	g.PageStates = &pageStates{}
	if got := g.get(patientA, b.next()); got.StatusCode != http.StatusGone {
		t.Errorf("a page whose state was discarded: %d", got.StatusCode)
	}
	g.PageStates = nil
	if got := g.get(patientA, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("a page whose state is elsewhere: %d", got.StatusCode)
	}
}

// linkServer answers every search with one page, and a link to the next.
type linkServer struct{ self, next string }

func (s linkServer) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/fhir+json")
	links := ""
	if r.URL.Query().Get("page") == "" && s.next != "" {
		links = `,"link":[{"relation":"self","url":"` + s.self + `"},{"relation":"next","url":"` + s.next + `"},{"relation":"last","url":"` + s.next + `"}]`
	}
	fmt.Fprintf(w, `{"resourceType":"Bundle","type":"searchset"%s,"entry":[{"resource":{"resourceType":"Patient","id":"a"},"search":{"mode":"match","score":0.5}},
		{"resource":{"resourceType":"OperationOutcome"},"search":{"mode":"outcome"}}]}`, links)
	return nil
}

// TestServerLinks checks that links of all sorts of servers are followed, and only below the FHIR base.
func TestServerLinks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, self, next string
		want             string // path and query below the base; empty if it is not followed
	}{
		{"HAPI", "http://x/fhir/Patient?_id=a", "http://x/fhir?page=1", "?page=1"},
		{"its own parameter", "http://x/fhir/Patient?_id=a", "http://x/fhir/Patient?_id=a&page=2", "/Patient?_id=a&page=2"},
		{"behind a prefix", "https://gateway.example/fhir/R4/Patient?_id=a", "https://gateway.example/fhir/R4/Patient?page=2", "/Patient?page=2"},
		{"no self", "", "http://x/fhir/Patient?page=2", "/Patient?page=2"},
		{"another path for itself", "http://x/fhir/_search", "http://x/fhir/Patient/_search?page=2", "/Patient/_search?page=2"},
		{"relative", "Patient?_id=a", "Patient?page=2", "/Patient?page=2"},
		{"outside its base", "http://x/fhir/Patient?_id=a", "http://x/admin?page=1", ""},
		{"beside its base", "http://x/fhir/Patient?_id=a", "http://x/fhirx/Patient?page=1", ""},
		{"nowhere", "http://x/fhir/Patient?_id=a", "http://x/fhir", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			w := httptest.NewRecorder()
			var asked []string
			server := linkServer{tt.self, tt.next}
			next := handler(func(w http.ResponseWriter, r *http.Request) error {
				asked = append(asked, strings.TrimPrefix(r.URL.RequestURI(), "/fhir/R4"))
				return server.ServeHTTP(w, r)
			})
			err := g.Serve(w, httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient?_count=1", nil), next, enforce.Bearer{Rights: access.New(patientA, g.Shared)})
			if (err == nil) != (tt.want != "") {
				t.Fatalf("got %v", err)
			}
			if tt.want == "" {
				return
			}
			if strings.Contains(w.Body.String(), "outcome") || strings.Contains(w.Body.String(), "score") || strings.Contains(w.Body.String(), "last") {
				t.Errorf("got %s", w.Body)
			}
			var b bundle
			_ = json.Unmarshal(w.Body.Bytes(), &b)
			u, _ := url.Parse(b.next())
			if err := g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, u.Path, nil), next, enforce.Bearer{Rights: access.New(patientA, g.Shared)}); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(asked, tt.want) {
				t.Errorf("asked %q, want %q", asked, tt.want)
			}
		})
	}
}

// handler is a server that a test makes of a function.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) error { return h(w, r) }
