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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// sortedValues are values of an element, by its FHIR type: two of each, so that most resources tie.
var sortedValues = map[string][2]string{
	"date": {`"2024-01-01"`, `"2024-02-02"`}, "dateTime": {`"2024-01-01"`, `"2024-02-02"`},
	"instant": {`"2024-01-01T00:00:00Z"`, `"2024-02-02T00:00:00Z"`},
	"Period":  {`{"start":"2024-01-01"}`, `{"start":"2024-02-02"}`},
	"code":    {`"x"`, `"y"`}, "string": {`"x"`, `"y"`}, "boolean": {`true`, `false`},
	"CodeableConcept": {`{"coding":[{"system":"http://c","code":"x"}]}`, `{"coding":[{"system":"http://c","code":"y"}]}`},
}

// set sets an element, unless another value has its place.
func set(in map[string]any, elements []string, value string) {
	for _, name := range elements[:len(elements)-1] {
		if in[name] == nil {
			in[name] = map[string]any{}
		}
		next, ok := in[name].(map[string]any)
		if !ok {
			return
		}
		in = next
	}
	if last := elements[len(elements)-1]; in[last] == nil {
		in[last] = json.RawMessage(value)
	}
}

// tied are resources of a type, of which some are patient a's, by each of the parameters that tell it.
func tied(resourceType string, members []string, n int) (all, own []string) {
	for i := range n {
		res := map[string]any{"resourceType": resourceType, "id": fmt.Sprintf("%s-%02d", strings.ToLower(resourceType[:3]), i)}
		isOwn := false
		for at, name := range members {
			if p, _ := searchparam.Lookup(resourceType, name); i%(len(members)+2) == at || i%7 == 3 {
				set(res, p.Paths[0].Elements, `{"reference":"Patient/a"}`)
				isOwn = true
			}
		}
		for _, p := range searchparam.Parameters(resourceType) {
			for _, path := range p.Paths {
				if value, ok := sortedValues[path.Type]; ok && p.CanSort() && len(path.Filters) == 0 && (i%5 > 0 || p.Name == "category") {
					set(res, path.Elements, value[i/3%2])
				}
			}
		}
		text, _ := json.Marshal(res)
		all = append(all, string(text))
		if isOwn {
			own = append(own, res["id"].(string))
		}
	}
	return all, own
}

// tiedObservations are those of which some are in the compartment of patient a.
func tiedObservations(n int) (all, own []string) {
	members, _ := exact("Observation")
	return tied("Observation", members, n)
}

// walk are the ids on all pages, which must be those that are wanted, each once.
func (g *gateway) walk(h access.Holder, target string, want []string) {
	g.t.Helper()
	g.walkOn(h, target, want, len(want))
}

// walkOn is walk from a page on, where total is the total of all.
func (g *gateway) walkOn(h access.Holder, target string, want []string, total int) {
	g.t.Helper()
	var got []string
	for at, pages := target, 0; at != ""; pages++ {
		response := g.get(h, at)
		var b bundle
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil || pages > 100 {
			g.t.Fatalf("%s: status %d, %v, page %d", target, response.StatusCode, err, pages)
		}
		for _, e := range b.Entry {
			got = append(got, e.Resource.ID)
		}
		if at = b.next(); b.Total != nil && *b.Total != total {
			g.t.Errorf("%s: total %d of %d", target, *b.Total, total)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		g.t.Errorf("%s under %s:\ngot  %v\nwant %v", target, h.Scope, got, want)
	}
}

// TestPagesOfPostedSearch checks that the pages of a search by POST are asked for by GET, also where answers pass as they
// are (FHIR R4 §3.1.1.1).
func TestPagesOfPostedSearch(t *testing.T) {
	t.Parallel()
	all, _ := tiedObservations(9)
	for _, h := range []access.Holder{{Scope: "system/*.rs"}, {Scope: "user/*.rs", User: clinician.User}} {
		g := newGateway(t, all...)
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/Observation/_search", strings.NewReader("_count=4"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response := g.send(h, r)
		var b bundle
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK || len(b.Entry) != 4 {
			t.Fatalf("%s: %d, %v, %d entries", h.Scope, response.StatusCode, err, len(b.Entry))
		}
		rest := idsOf(all)
		for _, e := range b.Entry {
			rest = slices.DeleteFunc(rest, func(id string) bool { return id == e.Resource.ID })
		}
		g.walkOn(h, b.next(), rest, len(all))
	}
}

// TestBranchesAnswerInWhole checks that what is found is asked for in whole, where several searches find it or only some of
// it may be seen: without its elements it would come twice, or not at all.
func TestBranchesAnswerInWhole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		holder   access.Holder
		target   string
		searches int
	}{
		{access.Holder{Scope: "system/*.rs"}, "Patient/a/Observation?", 2},
		{access.Holder{Scope: "system/Observation.rs"}, "Patient/a/Observation?", 2},
		{access.Holder{Scope: "patient/Observation.rs", Patient: "a"}, "Observation?patient=a&", 1},
	} {
		for _, parameter := range []string{"_summary=text", "_elements=id", "_elements:exclude=note"} {
			g := newGateway(t, records...)
			searched := 0
			g.server.Seen = func(r *http.Request) {
				if searched++; strings.Contains(r.URL.RawQuery, "_summary") || strings.Contains(r.URL.RawQuery, "_elements") {
					t.Errorf("%s, %s: asked %s", tt.holder.Scope, parameter, r.URL)
				}
			}
			if got := g.get(tt.holder, tt.target+parameter); got.StatusCode != http.StatusOK || searched < tt.searches {
				t.Errorf("%s, %s: status %d, %d searches", tt.holder.Scope, parameter, got.StatusCode, searched)
			}
		}
	}
}

// sorts are those by which a search of a type may be ordered.
func sorts(resourceType string) []string {
	all := []string{""}
	for _, p := range searchparam.Parameters(resourceType) {
		if p.CanSort() {
			all = append(all, "&_sort="+p.Name, "&_sort=-"+p.Name)
		}
	}
	return all
}

// exact are the types whose records are found by searches, with what tells that they are a patient's: those of the
// compartment, the patient's devices and nobody's, and those that are everybody's.
func exact(resourceType string) (members []string, ok bool) {
	members, ok = compartment.Patient(resourceType)
	_, isShared := access.NewShared(nil)[resourceType]
	switch resourceType {
	case "Binary", "Bundle", "Patient":
		return nil, false
	case "Device":
		return []string{"patient"}, true
	}
	return members, ok || isShared
}

// TestPagesAreExact checks that pages hold all that may be seen, each once, of each type, in each order and of each size
// (each order has some of the sizes, in turn), before a server that orders anew with each answer what _sort leaves open.
func TestPagesAreExact(t *testing.T) {
	t.Parallel()
	for turn, resourceType := range interaction.Types() {
		members, ok := exact(resourceType)
		if !ok {
			continue
		}
		t.Run(resourceType, func(t *testing.T) {
			t.Parallel()
			all, own := tied(resourceType, members, 15)
			if len(members) == 0 || resourceType == "Device" {
				own = idsOf(all)
			}
			g := newGateway(t, all...)
			g.server.Shuffles = true
			for i, order := range sorts(resourceType) {
				g.walk(patientA, fmt.Sprintf("%s?_count=%d%s", resourceType, 1+(turn+5*i)%16, order), own)
			}
			g.walk(ownPatient, resourceType+"?_count=5&_sort=-_lastUpdated", own)
			g.walk(clinician, resourceType+"?_count=5&_sort=-_lastUpdated", idsOf(all))
		})
	}
}

// ownPatient is the patient, by what the person may do rather than by a patient in context.
var ownPatient = access.Holder{Scope: "user/*.rs", UserPatient: "a", User: interaction.Reference{Type: "Patient", ID: "a"}}

// idsOf are the ids of resources.
func idsOf(texts []string) []string {
	var all []string
	for _, text := range texts {
		var res struct{ ID string }
		_ = json.Unmarshal([]byte(text), &res)
		all = append(all, res.ID)
	}
	return all
}

// TestPagesOfScopes checks the same where several scopes, or several types, make one search several.
func TestPagesOfScopes(t *testing.T) {
	t.Parallel()
	observations, own := tiedObservations(40)
	conditions, others := tied("Condition", []string{"patient", "asserter"}, 30)
	many := slices.Sorted(slices.Values(slices.Concat(own, others)))
	g := newGateway(t, slices.Concat(observations, conditions)...)
	g.server.Shuffles = true
	all := idsOf(observations)
	var bySubject []string
	for i, text := range observations {
		if strings.Contains(text, `"subject":{"reference":"Patient/a"}`) {
			bySubject = append(bySubject, all[i])
		}
	}
	for _, tt := range []struct {
		name   string
		holder access.Holder
		search string
		want   []string
	}{
		{"two categories", access.Holder{Scope: "patient/Observation.rs?category=http://c|x patient/Observation.rs?category=http://c|y", Patient: "a"}, "Observation?", own},
		{"two categories of the app's own patient", access.Holder{Scope: "patient/Observation.rs?category=http://c|x patient/Observation.rs?category=http://c|y", Patient: "a"}, "Observation?patient=a&", bySubject},
		{"two constraints that overlap", access.Holder{Scope: "patient/Observation.rs?category=http://c|x patient/Observation.rs?date=gt2020 patient/Observation.rs?category=http://c|y", Patient: "a"}, "Observation?", own},
		{"two constraints of anybody's", access.Holder{Scope: "user/Observation.rs?category=http://c|x user/Observation.rs?status=y user/Observation.rs?category=http://c|y", User: clinician.User}, "Observation?", all},
		{"a patient's and anybody's", access.Holder{Scope: "patient/Observation.rs user/Observation.rs?category=http://c|x user/Observation.rs?category=http://c|y", Patient: "a", User: clinician.User}, "Observation?", all},
		{"the app's own patient", patientA, "Observation?patient=Patient/a&", bySubject},
		{"several types", patientA, "?_type=Observation,Condition&", many},
		{"a compartment", patientA, "Patient/a/Observation?", own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, order := range []string{"", "&_sort=-date", "&_sort=status", "&_sort=code", "&_sort=_lastUpdated", "&_sort=-_lastUpdated,_id"} {
				if strings.HasPrefix(tt.search, "?") && !strings.Contains(order, "_lastUpdated") {
					continue
				}
				for _, size := range []int{3, 7, 25, 1000} {
					g.walk(tt.holder, fmt.Sprintf("%s_count=%d%s", tt.search, size, order), tt.want)
				}
			}
		})
	}
}

// TestPagesOfLongIDs checks the pages of resources with the longest ids, and of a server that ignores _count.
func TestPagesOfLongIDs(t *testing.T) {
	t.Parallel()
	var all, own []string
	for i := range 120 {
		own = append(own, fmt.Sprintf("%064d", i))
		subject, performer := "Patient/a", `"display":"somebody"`
		if i%2 == 0 {
			subject, performer = "Group/g", `"reference":"Patient/a"`
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":%q,"status":"final","subject":{"reference":%q},"performer":[{%s}]}`, own[i], subject, performer))
	}
	g := newGateway(t, all...)
	g.server.Shuffles = true
	for _, size := range []int{5, 100, 1000} {
		g.walk(patientA, fmt.Sprintf("Observation?_sort=status&_count=%d", size), own)
	}
	// Each page hides a resource, so that the next one is begun; it is long whatever was asked for.
	for i := range own {
		all[i] = strings.ReplaceAll(all[i], "Group/g", "Patient/a")
	}
	hidden := `{"resourceType":"Observation","id":"hidden","status":"final","subject":{"reference":"Patient/b"}}`
	g = newGateway(t)
	g.server.Answers = map[string]http.HandlerFunc{}
	pages := [][]string{slices.Concat([]string{hidden}, all[:60]), all[60:]}
	for n, path := range []string{"Observation", ""} {
		text := `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + strings.Join(pages[n], `},{"resource":`) + `}]}`
		if path != "" {
			text = linkedTo(text, "/Observation", fhirtest.Address+"?_getpages=1")
		}
		g.server.Answers[path] = answering(text)
	}
	g.walk(patientA, "Observation?patient=a&_count=2", own)
}

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
		b := decoded[bundle](t, g.get(patientA, target))
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
	b := decoded[bundle](t, g.get(patientA, "Observation?"+search))
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
