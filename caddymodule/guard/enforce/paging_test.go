package enforce_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// sortedValues are two values for an element of each FHIR type. Most resources are tied because there are only two.
var sortedValues = map[string][2]string{
	"date": {`"2024-01-01"`, `"2024-02-02"`}, "dateTime": {`"2024-01-01"`, `"2024-02-02"`},
	"instant": {`"2024-01-01T00:00:00Z"`, `"2024-02-02T00:00:00Z"`},
	"Period":  {`{"start":"2024-01-01"}`, `{"start":"2024-02-02"}`},
	"code":    {`"x"`, `"y"`}, "string": {`"x"`, `"y"`}, "boolean": {`true`, `false`},
	"CodeableConcept": {`{"coding":[{"system":"http://c","code":"x"}]}`, `{"coding":[{"system":"http://c","code":"y"}]}`},
}

// set sets an element unless it already has a value.
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

// tiedResources returns n resources of a type. Those in own belong to patient a through one of the members.
func tiedResources(resourceType string, members []string, n int) (all, own []string) {
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

// tiedObservations returns n Observations. Those in own are in the compartment of patient a.
func tiedObservations(n int) (all, own []string) {
	members, _ := membershipMembers("Observation")
	return tiedResources("Observation", members, n)
}

// walk follows all pages and checks that they contain each wanted id exactly once.
func (g *gateway) walk(h access.Holder, target string, want []string) {
	g.t.Helper()
	g.walkOn(h, target, want, len(want))
}

// walkOn is like walk, but starts at a page; total is the search's total.
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

// Pages of a search by POST are requested by GET, even if responses pass unjudged (FHIR R4 §3.1.1.1).
func TestPagesOfPostedSearch(t *testing.T) {
	t.Parallel()
	all, _ := tiedObservations(9)
	for _, h := range []access.Holder{{Scope: "system/*.rs"}, {Scope: "user/*.rs", User: clinician.User}} {
		g := newGateway(t, all...)
		r := newRequest(http.MethodPost, "/fhir/R4/Observation/_search", "application/x-www-form-urlencoded", "_count=4")
		response := g.send(h, r)
		var b bundle
		if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK || len(b.Entry) != 4 {
			t.Fatalf("%s: %d, %v, %d entries", h.Scope, response.StatusCode, err, len(b.Entry))
		}
		remaining := idsOf(all)
		for _, e := range b.Entry {
			remaining = slices.DeleteFunc(remaining, func(id string) bool { return id == e.Resource.ID })
		}
		g.walkOn(h, b.next(), remaining, len(all))
	}
}

// If several branches find resources or some are withheld, complete resources are requested: partial ones would cause duplicate
// or missing matches.
func TestBranchesRequestCompleteResources(t *testing.T) {
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
			g.server.OnRequest = func(r *http.Request) {
				if searched++; strings.Contains(r.URL.RawQuery, "_summary") || strings.Contains(r.URL.RawQuery, "_elements") {
					t.Errorf("%s, %s: unexpected request %s", tt.holder.Scope, parameter, r.URL)
				}
			}
			if got := g.get(tt.holder, tt.target+parameter); got.StatusCode != http.StatusOK || searched < tt.searches {
				t.Errorf("%s, %s: status %d, %d searches", tt.holder.Scope, parameter, got.StatusCode, searched)
			}
		}
	}
}

// sortKeys returns the sort keys that are tested for a type.
func sortKeys(resourceType string) []string {
	all := []string{""}
	for _, p := range searchparam.Parameters(resourceType) {
		if p.CanSort() {
			all = append(all, "&_sort="+p.Name, "&_sort=-"+p.Name)
		}
	}
	return all
}

// membershipMembers returns the members by which resources of a type belong to a patient. It supports types of the compartment,
// Device (which may have no patient), and shared types.
func membershipMembers(resourceType string) (members []string, ok bool) {
	members, ok = compartment.PatientParameters(resourceType)
	_, isShared := access.NewTypeRules(nil)[resourceType]
	switch resourceType {
	case "Binary", "Bundle", "Patient":
		return nil, false
	case "Device":
		return []string{"patient"}, true
	}
	return members, ok || isShared
}

// Although the server reorders ties in each response, all pages together contain each visible match exactly once, for each type
// and order. Each order is tested with some of the page sizes.
func TestPagesAreExact(t *testing.T) {
	t.Parallel()
	for turn, resourceType := range interaction.Types() {
		members, ok := membershipMembers(resourceType)
		if !ok {
			continue
		}
		t.Run(resourceType, func(t *testing.T) {
			t.Parallel()
			all, own := tiedResources(resourceType, members, 15)
			if len(members) == 0 || resourceType == "Device" {
				own = idsOf(all)
			}
			g := newGateway(t, all...)
			g.server.ShufflesTies = true
			for i, order := range sortKeys(resourceType) {
				g.walk(patientA, fmt.Sprintf("%s?_count=%d%s", resourceType, 1+(turn+5*i)%16, order), own)
			}
			g.walk(ownPatient, resourceType+"?_count=5&_sort=-_lastUpdated", own)
			g.walk(clinician, resourceType+"?_count=5&_sort=-_lastUpdated", idsOf(all))
		})
	}
}

// ownPatient is a patient with user/ scopes and no patient in the launch context.
var ownPatient = access.Holder{Scope: "user/*.rs", UserPatient: "a", User: interaction.Reference{Type: "Patient", ID: "a"}}

// idsOf returns the ids of resources.
func idsOf(texts []string) []string {
	var all []string
	for _, text := range texts {
		var res struct{ ID string }
		_ = json.Unmarshal([]byte(text), &res)
		all = append(all, res.ID)
	}
	return all
}

// Pages are also exact if several scopes or types split a search.
func TestPagesOfScopes(t *testing.T) {
	t.Parallel()
	observations, own := tiedObservations(40)
	conditions, conditionIDs := tiedResources("Condition", []string{"patient", "asserter"}, 30)
	many := slices.Sorted(slices.Values(slices.Concat(own, conditionIDs)))
	g := newGateway(t, slices.Concat(observations, conditions)...)
	g.server.ShufflesTies = true
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

// Pages are complete if ids have the maximum length and the server ignores _count.
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
	g.server.ShufflesTies = true
	for _, size := range []int{5, 100, 1000} {
		g.walk(patientA, fmt.Sprintf("Observation?_sort=status&_count=%d", size), own)
	}
	// Each page contains a hidden resource, so that the next page is requested. Pages are long, whatever _count is.
	for i := range own {
		all[i] = strings.ReplaceAll(all[i], "Group/g", "Patient/a")
	}
	hidden := `{"resourceType":"Observation","id":"hidden","status":"final","subject":{"reference":"Patient/b"}}`
	g = newGateway(t)
	g.server.Handlers = map[string]http.HandlerFunc{}
	pages := [][]string{slices.Concat([]string{hidden}, all[:60]), all[60:]}
	for n, path := range []string{"Observation", ""} {
		text := `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + strings.Join(pages[n], `},{"resource":`) + `}]}`
		if path != "" {
			text = withLinks(text, "/Observation", fhirtest.Address+"?_getpages=1")
		}
		g.server.Handlers[path] = newHandler(text)
	}
	g.walk(patientA, "Observation?patient=a&_count=2", own)
}

// Links in responses stay within the gateway and are valid only for the token.
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
				g := newGateway(t, wardObservations()...)
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
		g := newGateway(t, wardObservations()...)
		b := mustDecode[bundle](t, g.get(patientA, target))
		if got := b.Link[0].URL; got != g.BaseURL+"/"+want && got != g.BaseURL+want {
			t.Errorf("%s: got %s", target, got)
		}
	}
}

// Links stay short and no page is lost, however long the search is and whether its pages are judged or pass.
func TestLongSearch(t *testing.T) {
	t.Parallel()
	var ids []string
	for n := range 60 {
		ids = append(ids, fmt.Sprintf("o%02d", n))
	}
	search := "_count=5&_id=" + strings.Join(ids, ",") + ",none" + strings.Repeat("x", 5000)
	repeating := func(g *gateway) message.NextHandler { // server with links that repeat the search
		return handler(func(w http.ResponseWriter, r *http.Request) error {
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
			g := newGateway(t, wardObservations()...)
			g.SupportsCompartmentSearch = tt.byCompartment
			g.next = repeating(g)
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Observation?"+search, nil)
			if tt.form {
				r = newRequest(http.MethodPost, "/fhir/R4/Observation/_search", "application/x-www-form-urlencoded", search)
			}
			var b bundle
			response := g.send(tt.holder, r)
			if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK || b.next() == "" || len(b.next()) > 2000 {
				t.Fatalf("status %d, a link of %d bytes, %v", response.StatusCode, len(b.next()), err)
			}
			if more := g.read(tt.holder, b.next(), 5); len(b.Entry) != 5 || len(more) != tt.want-5 {
				t.Errorf("%d, and %d more", len(b.Entry), len(more))
			}
		})
	}
	g := newGateway(t, wardObservations()...)
	b := mustDecode[bundle](t, g.get(patientA, "Observation?"+search))
	g.PageStates = &pageStates{}
	if got := g.get(patientA, b.next()); got.StatusCode != http.StatusGone {
		t.Errorf("a page with discarded state: %d", got.StatusCode)
	}
	g.PageStates = nil
	if got := g.get(patientA, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("a page with state at another gateway: %d", got.StatusCode)
	}
}

// linkServer returns the same page for every search, with a link to the next page.
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

// Links in the formats of various servers are followed if they are below the FHIR base.
func TestServerLinks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, self, next string
		want             string // path and query below the base; empty if the link is rejected
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
			var requests []string
			server := linkServer{tt.self, tt.next}
			next := handler(func(w http.ResponseWriter, r *http.Request) error {
				requests = append(requests, strings.TrimPrefix(r.URL.RequestURI(), "/fhir/R4"))
				return server.ServeHTTP(w, r)
			})
			err := g.Serve(w, httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient?_count=1", nil), next, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)})
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
			if err := g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, u.Path, nil), next, enforce.Bearer{Rights: access.New(patientA, g.TypeRules)}); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(requests, tt.want) {
				t.Errorf("requests %q, want %q", requests, tt.want)
			}
		})
	}
}

// observationsOf returns n Observations of patient a with UUIDs and texts of the given length. Those not in own are withheld.
func observationsOf(n, length int) (all, own []string) {
	for i := range n {
		id, subject := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), "Patient/a"
		if i%10 == 3 {
			subject = "Patient/b"
		} else {
			own = append(own, id)
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":%q,"status":"final","subject":{"reference":%q},"note":[{"text":%q}]}`,
			id, subject, strings.Repeat("x", length)))
	}
	return all, own
}

// Pages have the requested length and cost few backend requests, whatever the length of the server's pages.
func TestPagesOfServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name               string
		matches            int
		fewest, longest    int // minimum and maximum number of matches on a page of the server
		requests, searches int // maximum number of requests for a page, and of searches for all pages
	}{
		{"one page, regardless of _count", 300, 1000, 0, 1, 9},
		{"one page of more", 400, 1000, 0, 1, 11},
		{"one page of very many", 1500, 10000, 0, 1, 40},
		{"more than requested, with next links", 300, 120, 0, 2, 12},
		{"a greatest page of its own", 300, 0, 20, 5, 22}, // ties are shuffled
	} {
		for _, holder := range []access.Holder{patientA, {Scope: "system/Observation.rs"}} {
			t.Run(tt.name+" under "+holder.Scope, func(t *testing.T) {
				t.Parallel()
				all, own := observationsOf(tt.matches, 0)
				g := newGateway(t, all...)
				if holder.Patient == "" {
					g.withRules(`deny resource.subject.reference == 'Patient/b'`)
				}
				g.server.ShufflesTies, g.server.MinCount, g.server.MaxCount = true, tt.fewest, tt.longest
				sent, pages, found := 0, 0, map[string]bool{}
				g.server.OnRequest = func(*http.Request) { sent++ }
				for at := "Observation?_count=50&subject=Patient/a"; at != ""; pages++ {
					if holder.Patient == "" {
						at = strings.TrimSuffix(at, "&subject=Patient/a")
					}
					var b bundle
					before := sent
					response := g.get(holder, at)
					if err := json.NewDecoder(response.Body).Decode(&b); err != nil || response.StatusCode != http.StatusOK {
						t.Fatalf("page %d: status %d, %v", pages, response.StatusCode, err)
					}
					at = b.next()
					if sent-before > tt.requests || at != "" && len(b.Entry) != 50 {
						t.Errorf("page %d: %d matches by %d requests", pages, len(b.Entry), sent-before)
					}
					for _, e := range b.Entry {
						if found[e.Resource.ID] {
							t.Errorf("%s comes twice", e.Resource.ID)
						}
						found[e.Resource.ID] = true
					}
				}
				if len(found) != len(own) || sent > tt.searches {
					t.Errorf("%d of %d matches by %d requests", len(found), len(own), sent)
				}
			})
		}
	}
}

// Matches that exceed the size limit for responses are requested in smaller pages, on the first page or a later one. A single
// match that exceeds the limit is an error.
func TestLargeMatches(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit   int64
		lengths func(i int) int
		status  int
	}{
		"all are large":    {60_000, func(int) int { return 5000 }, http.StatusOK},
		"later ones are":   {60_000, func(i int) int { return max(10, (i-30)*400) }, http.StatusOK},
		"one is too large": {20_000, func(i int) int { return max(10, (i-38)*30000) }, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []string
			for i := range 40 {
				of, _ := observationsOf(1, tt.lengths(i))
				all = append(all, strings.Replace(of[0], "00000000-", fmt.Sprintf("%08d-", i), 1))
			}
			g := newGateway(t)
			g.next = offsetPages(all)
			g.Limits = fhirserver.Limits{ResponseBytes: tt.limit}
			status, found := http.StatusOK, 0
			for at := "Observation?subject=Patient/a&_sort=_id&_count=20"; at != "" && status == http.StatusOK && found <= len(all); {
				var b bundle
				response := g.get(patientA, at)
				if status = response.StatusCode; status == http.StatusOK {
					if err := json.NewDecoder(response.Body).Decode(&b); err != nil || len(b.Entry) == 0 {
						t.Fatalf("%v, %d matches", err, len(b.Entry))
					}
				}
				found += len(b.Entry)
				at = b.next()
			}
			if status != tt.status || status == http.StatusOK && found != len(all) {
				t.Errorf("status %d, %d of %d matches", status, found, len(all))
			}
		})
	}
}

// offsetPages returns a handler for pages of resources. Their links contain the offset and the number of matches, like HAPI's.
// It writes a page in parts until the guard rejects it.
func offsetPages(all []string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		from, _ := strconv.Atoi(r.URL.Query().Get("_getpagesoffset"))
		count, _ := strconv.Atoi(r.URL.Query().Get("_count"))
		to := min(from+count, len(all))
		text := `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + strings.Join(all[from:to], `},{"resource":`) + `}]}`
		if to < len(all) {
			text = withLinks(text, strings.TrimPrefix(r.URL.Path, "/fhir/R4")+"?"+r.URL.RawQuery, fmt.Sprintf("%s?_getpages=1&_getpagesoffset=%d&_count=%d", fhirtest.Address, to, count))
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, text) // fails if the response exceeds the guard's size limit
		return nil
	}
}

// If each match requires a lookup of other resources, a page stops at the limit on requests without losing matches.
func TestMatchesThatNeedLookups(t *testing.T) {
	t.Parallel()
	var all, own []string
	for i := range 120 {
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":"o%03d","status":"final","subject":{"reference":"Patient/a"}}`, i),
			fmt.Sprintf(`{"resourceType":"Provenance","id":"p%03d","target":[{"reference":"Patient/a"},{"reference":"Observation/o%03d"}]}`, i, i))
		own = append(own, fmt.Sprintf("p%03d", i))
	}
	g := newGateway(t, all...)
	g.walk(patientA, "Provenance?_count=50", own)
}

// If a server loses matches at one page size, a full page without a total is not treated as the last page.
func TestTruncatedPages(t *testing.T) {
	t.Parallel()
	all, own := tiedObservations(70)
	var bySubject []string
	for i, id := range idsOf(all) {
		if strings.Contains(all[i], `"subject":{"reference":"Patient/a"}`) {
			bySubject = append(bySubject, id)
		}
	}
	for _, size := range []int{1, 5, 20, 21} {
		g := newGateway(t, all...)
		g.server.TruncatedCount = max(size, 20)
		g.walk(patientA, fmt.Sprintf("Observation?_sort=category,_id&_count=%d", size), own)
		g.server.TruncatedCount = size
		g.walk(patientA, fmt.Sprintf("Observation?patient=a&_count=%d", size), bySubject)
	}
}

// A search that must not repeat its request returns no total, whether or not matches are left for more pages.
func TestTotalsOfTruncatedSearches(t *testing.T) {
	t.Parallel()
	all, _ := tiedObservations(70)
	g := newGateway(t, all...)
	g.server.TruncatedCount, g.Limits.Requests = 20, 2
	pages := 0
	for at := "Observation?_count=5"; at != "" && pages < 100; pages++ {
		var b bundle
		if err := json.NewDecoder(g.get(patientA, at).Body).Decode(&b); err != nil || len(b.Entry) == 0 || b.Total != nil {
			t.Fatalf("page %d: %v, %+v", pages, err, b)
		}
		at = b.next()
	}
	if pages < 4 {
		t.Errorf("%d pages", pages)
	}
}

// If the last page may be truncated, no total is returned.
func TestTotalsOfTruncatedPages(t *testing.T) {
	t.Parallel()
	page := func(total string, ids ...string) string {
		for i, id := range ids {
			ids[i] = `{"resource":{"resourceType":"Observation","id":"` + id + `","status":"final","subject":{"reference":"Patient/a"}}}`
		}
		return `{"resourceType":"Bundle","type":"searchset"` + total + `,"entry":[` + strings.Join(ids, ",") + `]}`
	}
	for _, tt := range []struct {
		name, last string
		count      string
		total      int // -1 if the server sends none
	}{
		{"full, of unknown length", page("", "c", "d"), "", -1},
		{"full, with a total", page(`,"total":4`, "c", "d"), "", 4},
		{"not full", page("", "c"), "", 3},
		{"full, by its link", page("", "c"), "&_count=1", -1},
		{"not full, by its link", page("", "c", "d"), "&_count=3", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.server.Handlers = map[string]http.HandlerFunc{
				"Observation": newHandler(withLinks(page("", "a", "b"), "/Observation", fhirtest.Address+"?_getpages=1"+tt.count)),
				"":            newHandler(tt.last),
			}
			var first, last bundle
			if err := json.NewDecoder(g.get(patientA, "Observation?patient=a&_count=2").Body).Decode(&first); err != nil || first.Total != nil {
				t.Fatalf("%v, %+v", err, first)
			}
			if err := json.NewDecoder(g.get(patientA, first.next()).Body).Decode(&last); err != nil || last.next() != "" {
				t.Fatalf("%v, %+v", err, last)
			}
			if got := last.Total; tt.total < 0 && got != nil || tt.total >= 0 && (got == nil || *got != tt.total) {
				t.Errorf("total %v, want %d", got, tt.total)
			}
		})
	}
}

// A chain is rejected if its intermediate results may be incomplete.
func TestChainsOfTruncatedPages(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	requests := 0
	g.server.Handlers = map[string]http.HandlerFunc{"Observation": func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("_count"))
		entries := strings.Repeat(`{"resource":{"resourceType":"Observation","id":"a1","status":"final","subject":{"reference":"Patient/a"}}},`, n)
		newHandler(`{"resourceType":"Bundle","type":"searchset","entry":[`+strings.TrimSuffix(entries, ",")+`]}`)(w, r)
		requests++
	}}
	if got := g.get(patientA, "Patient?_has:Observation:subject:status=final"); got.StatusCode != http.StatusForbidden || requests < 2 {
		t.Errorf("status %d after %d searches", got.StatusCode, requests)
	}
}

// After a match was withheld, later pages do not repeat the total of earlier ones.
func TestTotalsOfHiddenMatches(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 6 {
		contained := map[bool]string{true: `,"contained":[{"resourceType":"Observation","id":"c","subject":{"reference":"Patient/b"}}]`}[i == 2]
		all = append(all, fmt.Sprintf(`{"resourceType":"Observation","id":"h%d","status":"final","subject":{"reference":"Patient/a"}%s}`, i, contained))
	}
	for parameter, want := range map[string]string{"": "[6 -1 5]", "&_total=accurate": "[6 -1 5]"} {
		g := newGateway(t, all...)
		var totals []int
		for at := "Observation?patient=a&_count=2" + parameter; at != "" && len(totals) < 9; {
			b := bundle{}
			if err := json.NewDecoder(g.get(patientA, at).Body).Decode(&b); err != nil {
				t.Fatal(err)
			}
			if at = b.next(); b.Total == nil {
				totals = append(totals, -1)
			} else {
				totals = append(totals, *b.Total)
			}
		}
		if got := fmt.Sprint(totals); got != want {
			t.Errorf("%q: totals %s, want %s", parameter, got, want)
		}
	}
}

// Judged pages have the requested length despite withheld matches, and their links are bound to the token.
func TestJudgedPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, query, want string }{
		{"as the server does", "", "Observation/a1 Observation/a2 Patient/a"},
		{"one by one", "?_count=1", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"two at once", "?_count=2", "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"two at once, of a type", "?_count=2&_type=Observation", "Observation/a1 Observation/a2 Patient/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t)
			pages := []string{searchset("Patient/a", "Observation/b1"), searchset("Observation/b1", "Device/b1"), searchset("Observation/a1", "Observation/b1", "Observation/a2")}
			g.server.Handlers["Patient/a/$everything"] = func(w http.ResponseWriter, r *http.Request) {
				newHandler(withLinks(pages[0], "/Patient/a/$everything", fhirtest.Address+"?_getpages=1"))(w, r)
			}
			g.server.Handlers[""] = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("_getpages") == "1" {
					newHandler(withLinks(pages[1], "?_getpages=1", fhirtest.Address+"?_getpages=2"))(w, r)
					return
				}
				newHandler(pages[2])(w, r)
			}
			got := g.entriesOf(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("GET Patient/a/$everything"+tt.query, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
	g := newOperationGateway(t)
	g.server.Handlers["Patient/a/$everything"] = newHandler(searchset("Patient/a", "Observation/b1", "Observation/a1"))
	h := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	var b bundle
	if err := json.NewDecoder(g.get(h, "Patient/a/$everything?_count=1").Body).Decode(&b); err != nil || len(b.Entry) != 1 || b.Total != nil {
		t.Fatalf("%v, %+v", err, b)
	}
	if got := g.get(access.Holder{Scope: "patient/*.rs", Patient: "b"}, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("another's page: status %d", got.StatusCode)
	}
	g.server.Put(`{"resourceType":"Patient","id":"a","active":true}`)
	g.server.Handlers["Patient/a"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }
	if got := g.get(h, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("a page of a patient who is gone: status %d", got.StatusCode)
	}
}

// Shared resources are included on the same page as a match that refers to them, whichever page of the server contains them.
// They are omitted if the only match that refers to them may be on an invisible page.
func TestSharedIncludesAcrossPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, query, first, second, want string }{
		{"named on another page", "", searchset("Practitioner/alice", "Observation/b1"), searchset("Observation/a1"), "Observation/a1 Practitioner/alice"},
		{"referenced by a hidden resource on another page", "", searchset("Patient/a", "Practitioner/alice"), searchset("Observation/b1"), "Patient/a"},
		{"nothing is hidden", "", searchset("Practitioner/alice"), searchset("Patient/a"), "Patient/a Practitioner/alice"},
		{"named by what could be hidden on the next page", "?_count=2", searchset("Patient/a", "Practitioner/alice"), searchset("Observation/b1"), "Patient/a"},
		{"named by what could be hidden on the page before", "?_count=2", searchset("Observation/b1"), searchset("Patient/a", "Practitioner/alice"), "Patient/a"},
		{"an own device, which is not beside", "?_count=2", searchset("Patient/a"), searchset("Device/a1", "Device/free", "Observation/b1"), "Device/a1 Patient/a"},
		{"named on the page before", "?_count=2", searchset("Observation/a1", "Patient/a"), searchset("Practitioner/alice", "Observation/a2"), "Observation/a1 Observation/a2 Patient/a Practitioner/alice"},
		{"named on the page after", "?_count=2", searchset("Practitioner/alice", "Patient/a"), searchset("Observation/a1"), "Observation/a1 Patient/a Practitioner/alice"},
		{"named on the page", "?_count=2", searchset("Observation/a1", "Practitioner/alice"), searchset("Observation/b1"), "Observation/a1 Practitioner/alice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOperationGateway(t)
			g.server.Handlers["Patient/a/$everything"] = newHandler(withLinks(tt.first, "/Patient/a/$everything", fhirtest.Address+"?_getpages=1"))
			g.server.Handlers[""] = newHandler(tt.second)
			g.server.OnRequest = func(r *http.Request) {
				if parameters := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/$everything") && parameters.Get("_count") != cmp.Or(strings.TrimPrefix(tt.query, "?_count="), "50") {
					t.Errorf("unexpected request %s", r.URL)
				}
			}
			got := g.entriesOf(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("GET Patient/a/$everything"+tt.query, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A shared resource is withheld if the resource that refers to it may be on a page that has not been judged yet.
func TestSharedIncludesBeforeLastPage(t *testing.T) {
	t.Parallel()
	g, requests := newOperationGateway(t), 0
	further := func(self string) http.HandlerFunc {
		requests++
		return newHandler(withLinks(searchset("Patient/a", "Practitioner/alice"), self, fhirtest.Address+"?_getpages="+strconv.Itoa(requests)))
	}
	g.server.Handlers["Patient/a/$everything"] = further("/Patient/a/$everything")
	g.server.Handlers[""] = func(w http.ResponseWriter, r *http.Request) { further("?"+r.URL.RawQuery)(w, r) }
	var b bundle
	h := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	if err := json.NewDecoder(g.get(h, "Patient/a/$everything").Body).Decode(&b); err != nil || b.next() == "" || len(b.Entry) == 0 {
		t.Fatalf("%v: %+v", err, b)
	}
	for _, e := range b.Entry {
		if e.Resource.ResourceType != "Patient" {
			t.Errorf("shows %s/%s", e.Resource.ResourceType, e.Resource.ID)
		}
	}
}

// A page ends within the limits on requests and size, even if few entries are visible.
func TestJudgedPagesEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, page  string
		limit       int64
		maxRequests int
	}{
		{"nothing to be seen", searchset("Observation/b1"), 0, 10},
		{"much to be seen", searchset("Observation/a1"), int64(len(searchset("Observation/a1")) + 300), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, requests := newOperationGateway(t), 0
			g.Limits.ResponseBytes = tt.limit
			g.server.Handlers["Patient/a/$everything"] = newHandler(withLinks(tt.page, "/Patient/a/$everything", fhirtest.Address+"?_getpages=0"))
			g.server.Handlers[""] = func(w http.ResponseWriter, r *http.Request) {
				requests++
				newHandler(withLinks(tt.page, "?"+r.URL.RawQuery, fhirtest.Address+"?_getpages="+strconv.Itoa(requests)))(w, r)
			}
			var b bundle
			if err := json.NewDecoder(g.get(access.Holder{Scope: "patient/*.rs", Patient: "a"}, "Patient/a/$everything").Body).Decode(&b); err != nil || b.next() == "" || requests > tt.maxRequests {
				t.Errorf("%v, %d pages", err, requests)
			}
		})
	}
}

// crossing adds two Observations that refer to both patients: the subjects are b and a.
var crossing = append(slices.Clip(records),
	`{"resourceType":"Observation","id":"b-focus-a","status":"final","subject":{"reference":"Patient/b"},"focus":[{"reference":"Patient/a"}]}`,
	`{"resourceType":"Observation","id":"a-focus-b","status":"final","subject":{"reference":"Patient/a"},"focus":[{"reference":"Patient/b"}]}`,
	`{"resourceType":"Device","id":"of-b","patient":{"reference":"Patient/b"}}`,
)

// Leaks fixed in Microsoft's FHIR server in 2026, as described in its pull requests, do not occur.
func TestMicrosoftFHIRServer(t *testing.T) {
	t.Parallel()
	holder := func(scope string) access.Holder {
		return access.Holder{Scope: scope, Patient: "a", User: clinician.User}
	}
	unknown, leaderless := holder("patient/*.rs"), holder("user/*.rs")
	unknown.Patient, leaderless.User = "", access.Holder{}.User
	split := access.Holder{Scope: "system/Patient.s system/Observation.r"}
	testSearches(t, crossing, []searchCase{
		{"5661: another patient's device", patientA, "Device", "Device/a1 Device/free"},
		{"5683: _include of another patient", patientA, "Observation?_id=a-focus-b&_include=Observation:focus", "Observation/a-focus-b"},
		{"5683: _revinclude of another's record", patientA, "Patient?_revinclude=Observation:focus", "Patient/a"},
		{"5683: $includes", patientA, "Patient/$includes?includesCt=1", "403"},
		{"5688: patient scopes without a patient", unknown, "Observation", "403"},
		{"5688: user scopes without fhirUser", leaderless, "Observation", "403"},
		{"5688: user scopes without fhirUser, by _type", leaderless, "?_type=Observation", "403"},
		{"5788: search of a type that may be read", split, "Observation", "403"},
		{"5788: search by _type of a type that may be read", split, "?_type=Observation", "403"},
		{"5788: search of all types", split, "", "Patient/a Patient/b"},
		{"5788: _revinclude of a type that may be read", split, "Patient?_revinclude=Observation:subject", "Patient/a Patient/b"},
		{"5817: a constraint by an unknown parameter", holder("patient/Observation.rs?shoe-size=9"), "Observation", "403"},
		{"5817: the same, for all types", holder("patient/*.rs?shoe-size=9"), "Observation", ""},
	})
	for _, tt := range []struct {
		name, scope, target string
	}{
		{"5674: $export by patient scopes", "patient/*.rs", "$export"},
		{"5674: $export by user scopes", "user/*.rs", "Patient/$export"},
		{"5674: $export by constrained scopes", "system/*.rs?_security=n", "$export"},
		{"5674: patients' records without the scope for Patient", "system/Observation.rs", "Patient/$export?_type=Observation"},
		{"5674: a group's records without the scope for Group", "system/Patient.rs", "Group/g1/$export?_type=Patient"},
		{"5674: types beyond the scopes", "system/Patient.rs", "$export?_type=Patient,Observation"},
		{"5788: read of a type that may be searched", split.Scope, "Patient/a"},
		{"5817: read under a constraint by an unknown parameter", "patient/Observation.rs?shoe-size=9", "Observation/a1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var query string
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/"+tt.target, nil)
			r.Header.Set("Prefer", "respond-async, handling=lenient")
			if got := newExportGateway(t, &query).send(holder(tt.scope), r); got.StatusCode != http.StatusForbidden || query != "" {
				t.Errorf("status %d, exported %q", got.StatusCode, query)
			}
		})
	}
}

// A scope's constraint applies even if the FHIR server ignores the search parameter because it is disabled (pull request 5817).
func TestMicrosoftDisabledParameter(t *testing.T) {
	t.Parallel()
	g := newGateway(t, records...)
	g.server.Handlers = map[string]http.HandlerFunc{"Observation": newHandler(`{"resourceType":"Bundle","type":"searchset","entry":[` +
		`{"fullUrl":"http://backend.internal:8080/fhir/Observation/a1","resource":` + records[3] + `,"search":{"mode":"match"}},` +
		`{"fullUrl":"http://backend.internal:8080/fhir/Observation/a2","resource":` + records[4] + `,"search":{"mode":"match"}}]}`)}
	h := access.Holder{Scope: "patient/Observation.rs?category=laboratory", Patient: "a"}
	if got := strings.Join(g.found(h, "Observation"), " "); got != "Observation/a1" {
		t.Errorf("found %s", got)
	}
}
