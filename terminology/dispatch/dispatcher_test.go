package dispatch

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// TestOutcomes checks that each request is counted by the source of its response.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(r.URL.Query().Get("url"), "theirs"))
	})
	for name, tt := range map[string]struct {
		url  string
		off  bool
		want map[Outcome]int
	}{
		"known here":             {genderSet, false, map[Outcome]int{OutcomeLocal: 1, OutcomeStored: 2}},
		"known behind":           {foreign, false, map[Outcome]int{OutcomeNext: 3}},
		"missing something":      {incomplete, false, map[Outcome]int{OutcomeNext: 3}},
		"refused":                {genderSet + "&count=x", false, map[Outcome]int{OutcomeRejected: 3}},
		"known here, unstored":   {genderSet, true, map[Outcome]int{OutcomeLocal: 3}},
		"known behind, unstored": {foreign, true, map[Outcome]int{OutcomeNext: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, settings{off: tt.off}, next)
			for range 3 {
				read(t, s.expand(tt.url))
			}
			s.host.wantCounts(t, tt.want)
		})
	}
}

// TestHitsAreNotDetached checks that requests are copied for producers only, not for cache hits.
func TestHitsAreNotDetached(t *testing.T) {
	t.Parallel()
	s := newSite(t, settings{}, http.NotFoundHandler())
	for range 10 {
		read(t, s.expand(genderSet))
	}
	if s.host.detached != 1 {
		t.Errorf("detached %d times", s.host.detached)
	}
}

// TestNoNextHandler checks the 404 for unknown value sets and, with AllOperations, for other unhandled requests.
func TestNoNextHandler(t *testing.T) {
	t.Parallel()
	nobody := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for path, want := range map[string]int{
		"ValueSet/$expand?url=" + foreign: http.StatusNotFound,
		"Patient/1":                       http.StatusNotFound,
		"metadata":                        http.StatusOK,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, settings{all: true}, nobody)
			if response := s.get("/fhir/R4/" + path); response.StatusCode != want {
				t.Errorf("status %d", response.StatusCode)
			}
		})
	}
}

// TestWriteInvalidatesResponses checks that a write invalidates the dependent responses, unless it is rejected.
func TestWriteInvalidatesResponses(t *testing.T) {
	t.Parallel()
	for status, ended := range map[int]bool{http.StatusOK: true, http.StatusForbidden: false, http.StatusBadGateway: true} {
		requests := 0
		s := newSite(t, settings{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+json")
			if r.Method == http.MethodPut {
				w.WriteHeader(status)
				return
			}
			requests++
			_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
		}))
		read(t, s.expand(foreign))
		s.send(httptest.NewRequest(http.MethodPut, "/fhir/R4/ValueSet/1", strings.NewReader(`{"resourceType":"ValueSet","id":"1","url":"`+foreign+`"}`)))
		read(t, s.expand(foreign))
		if (requests == 2) != ended {
			t.Errorf("%d: %d requests", status, requests)
		}
	}
}

// TestBusy checks that operations and searches rejected because of overload get a Retry-After header.
func TestBusy(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{all: true, off: true}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	busy := func(http.ResponseWriter, *http.Request) error {
		return &outcome.Error{Status: http.StatusServiceUnavailable, Code: "transient", Err: budget.ErrBusy}
	}
	g.front.operations.byType["ValueSet/$expand"], g.front.operations.fallbacks["ValueSet"] = busy, busy
	for _, path := range []string{"/fhir/R4/ValueSet/$expand?url=x", "/fhir/R4/ValueSet?url=x"} {
		if response := g.get(path); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "5" {
			t.Errorf("%s: got %d, Retry-After %q", path, response.StatusCode, response.Header.Get("Retry-After"))
		}
	}
}

// TestWriteLocalHeader checks that WriteLocalHeader is called for local responses, stored or not, but not for responses from
// other servers. Guards pass local responses through unchecked.
func TestWriteLocalHeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, who, url string
		settings       settings
		own            bool
	}{
		{"made here", "next handler", genderSet, settings{}, true},
		{"made here, not stored", "next handler", genderSet, settings{off: true}, true},
		{"the next handler's", "next handler", foreign, settings{}, false},
		{"the next handler's, not stored", "next handler", foreign, settings{off: true}, false},
		{"an upstream's", "upstream", foreign, settings{}, false},
		{"an upstream's, not stored", "upstream", foreign, settings{off: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newSiteBefore(t, tt.who, tt.settings, newExpandingBackend())
			for n := range 4 {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					before := g.host.localResponses
					response := g.send(httptest.NewRequest(method, "/fhir/R4/ValueSet/$expand?url="+tt.url, nil))
					if got := g.host.localResponses > before; got != tt.own || response.StatusCode != http.StatusOK {
						t.Errorf("%s %d: begun as made here: %v, %d %s", method, n, got, response.StatusCode, response.Header.Get("Cache-Status"))
					}
				}
			}
		})
	}
	g := newSite(t, settings{all: true}, http.NotFoundHandler())
	if response := g.get("/fhir/R4/ValueSet?url=" + genderSet); g.host.localResponses > 0 || response.StatusCode/100 == 5 {
		t.Errorf("a search is counted as a local response: %d, %d", g.host.localResponses, response.StatusCode)
	}
}

// storeWithOperations returns a FHIR server that stores definitions and responds to operations with answer.
func storeWithOperations(s *definitionStore, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if answer == "" || !strings.Contains(r.URL.Path, "$") {
			s.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, answer)
	}
}

// TestInstanceOfServer checks instance-level operations on IDs that both R4's built-in definitions and the FHIR server define:
// the FHIR server's resource wins.
func TestInstanceOfServer(t *testing.T) {
	t.Parallel()
	const theirs = "http://x.example/their-gender"
	const codes = `{"resourceType":"CodeSystem","id":"administrative-gender","url":"http://x.example/cs","content":"complete","concept":[{"code":"theirs"}]}`
	const conceptMap = `{"resourceType":"ConceptMap","id":"cm-address-use-v2","url":"http://x.example/map","group":[{"source":"http://x.example/cs","target":"http://x.example/t",
		"element":[{"code":"theirs","target":[{"code":"1","equivalence":"equal"}]}]}]}`
	for _, tt := range []struct {
		name    string
		fetched bool
		stored  bool   // whether the FHIR server has resources with the same IDs as R4
		answers string // response from the FHIR server to each operation
		path    string
		want    string
	}{
		{"fetched: $expand", true, true, "", "ValueSet/administrative-gender/$expand", `"code":"theirs"`},
		{"fetched: $validate-code", true, true, "", "ValueSet/administrative-gender/$validate-code?system=http://x.example/cs&code=theirs", `"name":"result","valueBoolean":true`},
		{"fetched: R4's code", true, true, "", "ValueSet/administrative-gender/$validate-code?system=http://hl7.org/fhir/administrative-gender&code=male", `"name":"result","valueBoolean":false`},
		{"fetched: of a CodeSystem", true, true, "", "CodeSystem/administrative-gender/$validate-code?code=theirs", `"name":"result","valueBoolean":true`},
		{"fetched: $lookup", true, true, "", "CodeSystem/administrative-gender/$lookup?code=theirs", `"valueUri":"http://x.example/cs"`},
		{"fetched: $translate", true, true, "", "ConceptMap/cm-address-use-v2/$translate?system=http://x.example/cs&code=theirs", `"name":"result","valueBoolean":true`},
		{"fetched: only R4 has the id", true, false, "", "ValueSet/administrative-gender/$expand", `"code":"male"`},
		{"passed on: $expand", false, true, expansionOf(theirs, "theirs"), "ValueSet/administrative-gender/$expand", `"code":"theirs"`},
		{"passed on: $lookup", false, true, `{"resourceType":"Parameters","id":"theirs"}`, "CodeSystem/administrative-gender/$lookup?code=male", `"id":"theirs"`},
		{"passed on: refused", false, true, "", "ValueSet/administrative-gender/$expand", `"code":"not-found"`},
		{"of the type", false, true, "", "ValueSet/$expand?url=" + genderSet, `"code":"male"`},
	} {
		for _, off := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, off=%t", tt.name, off), func(t *testing.T) {
				t.Parallel()
				terminologytest.RequireFeatures(t, tt.path)
				s := newDefinitionStore()
				if tt.stored {
					s.resources = map[string]string{
						"ValueSet/administrative-gender":   valueSetOf("administrative-gender", theirs, "theirs"),
						"CodeSystem/administrative-gender": codes, "ConceptMap/cm-address-use-v2": conceptMap,
					}
				}
				g := newSite(t, settings{all: true, off: off, fetched: fetchOptions(tt.fetched)}, storeWithOperations(s, tt.answers))
				for range 3 { // first computed, then stored, then served from the cache
					if body := read(t, g.get("/fhir/R4/"+tt.path)); !strings.Contains(body, tt.want) {
						t.Fatalf("got %s, want it to contain %s", body, tt.want)
					}
				}
			})
		}
	}
}

// TestInstanceWithoutServer checks instance-level operations without a FHIR server.
func TestInstanceWithoutServer(t *testing.T) {
	t.Parallel()
	nobody := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, s := range []settings{{}, {off: true}, {fetched: fetchOptions(true)}, {off: true, fetched: fetchOptions(true)}} {
		g := newSite(t, s, nobody)
		for range 3 {
			if body := read(t, g.get("/fhir/R4/ValueSet/administrative-gender/$expand")); !strings.Contains(body, `"code":"male"`) {
				t.Errorf("fetched=%t, off=%t: got %s", s.fetched != nil, s.off, body)
			}
		}
		posted := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/administrative-gender/$expand",
			strings.NewReader(`{"resourceType":"Parameters","parameter":[{"name":"filter","valueString":"female"}]}`))
		posted.Header.Set("Content-Type", "application/fhir+json")
		if body := read(t, g.send(posted)); !strings.Contains(body, `"code":"female"`) || strings.Contains(body, `"code":"male"`) {
			t.Errorf("fetched=%t, off=%t: got %s", s.fetched != nil, s.off, body)
		}
	}
}

// TestInstanceOfFailingServer checks that an instance-level operation fails while the FHIR server fails.
func TestInstanceOfFailingServer(t *testing.T) {
	t.Parallel()
	for _, fetched := range []bool{false, true} {
		g := newSite(t, settings{fetched: fetchOptions(fetched)}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}))
		if got := g.get("/fhir/R4/ValueSet/administrative-gender/$expand"); got.StatusCode < 500 {
			t.Errorf("fetched=%t: got %d", fetched, got.StatusCode)
		}
	}
}

// TestInstanceWritten checks that writing a resource with the ID of one of R4's resources replaces the stored expansion.
func TestInstanceWritten(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{fetched: fetchOptions(true)}, newDefinitionStore())
	const path = "/fhir/R4/ValueSet/administrative-gender/$expand"
	for range 3 {
		if body := read(t, g.get(path)); !strings.Contains(body, `"code":"male"`) {
			t.Fatal(body)
		}
	}
	g.write(http.MethodPut, "ValueSet/administrative-gender", valueSetOf("administrative-gender", "http://x.example/theirs", "theirs"))
	if body := read(t, g.get(path)); !strings.Contains(body, `"code":"theirs"`) {
		t.Error(body)
	}
}

// browserHeaders are header values that browsers and their libraries send. "" means that the header is omitted.
var browserHeaders = map[string][]string{
	"Accept-Language": {
		"", "*", "en-US,en;q=0.9", "en-US,en;q=0.5", "en-us,en;q=0.900", "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7", "de, en;q=0.5, *;q=0.1",
		"zh-Hans-CN,zh-Hant-TW;q=0.8,en-u-ca-gregory;q=0.3", "DE-ch, en-GB ;Q=0.50", "fr-CH, fr;q=0.9, en;q=0.8, de;q=0.7, *;q=0.5", "de,*;q=0", "en_US,12,;q=1", "de;q=2,en",
	},
	"Accept": {
		"", "*/*", "application/json, text/plain, */*", "application/fhir+json", "application/json+fhir", "application/fhir+xml", "application/xml+fhir;q=0.9, text/plain",
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", "application/xml;q=0.0004,application/json;q=0.5", "application/fhir+json; fhirVersion=4.0",
	},
	"Accept-Encoding": {"", "gzip, deflate, br", "gzip, deflate, br, zstd", "identity"},
	"Cache-Control":   {"", "no-cache", "max-age=0"},
	"Pragma":          {"", "no-cache"},
	"Sec-Fetch-Mode":  {"", "cors", "navigate"},
	"Origin":          {"", "https://app.example"},
	"User-Agent":      {"", "Mozilla/5.0 (X11; Linux x86_64)"},
}

// browserRequest returns a request with random values of browserHeaders.
func browserRequest(random *rand.Rand, path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, name := range slices.Sorted(maps.Keys(browserHeaders)) {
		values := browserHeaders[name]
		if value := values[random.IntN(len(values))]; value != "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

// decoded returns the decoded body of a response, and its entity tag without the suffix for the content coding.
func decoded(t *testing.T, response *http.Response) (body, tag string) {
	t.Helper()
	tag = strings.NewReplacer("-gz", "", "-zs", "").Replace(response.Header.Get("Etag"))
	var plain io.Reader = response.Body
	var err error
	switch response.Header.Get("Content-Encoding") {
	case "gzip":
		plain, err = gzip.NewReader(plain)
	case "zstd":
		plain, err = zstd.NewReader(plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	return string(all), tag
}

// TestSameResponseToBrowser checks that repeated requests of a browser get the same body and entity tag, stored or not, so that
// the browser can revalidate its copy.
func TestSameResponseToBrowser(t *testing.T) {
	t.Parallel()
	stored, unstored := newSite(t, settings{}, http.NotFoundHandler()), newSite(t, settings{off: true}, http.NotFoundHandler())
	random := rand.New(rand.NewPCG(36, 1))
	for range 600 {
		r := browserRequest(random, "/fhir/R4/ValueSet/$expand?url="+genderSet)
		if !negotiation.HasXML() && negotiation.AcceptsXML(r.Header["Accept"]) {
			continue
		}
		body, tag := decoded(t, unstored.send(r.Clone(t.Context())))
		for n := range 3 {
			response := stored.send(r.Clone(t.Context()))
			if got, gotTag := decoded(t, response); response.StatusCode != http.StatusOK || got != body || gotTag != tag {
				t.Fatalf("%v: answer %d is %d %s\n%s\nnot %s\n%s", r.Header, n+1, response.StatusCode, gotTag, got, tag, body)
			}
		}
		again := r.Clone(t.Context())
		again.Header.Set("If-None-Match", tag)
		if got := stored.send(again); got.StatusCode != http.StatusNotModified {
			t.Fatalf("%v: %d to who has %s", r.Header, got.StatusCode, tag)
		}
	}
}

// TestNextHandlerHeaderNotation checks that the next handler receives headers in the notation that browsers use.
func TestNextHandlerHeaderNotation(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, expansionOf(foreign, r.Header.Get("Accept-Language")))
	}))
	for _, language := range []string{"en-us , en;q=0.900", "en-US,en;q=0.9"} {
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4/ValueSet/$expand?url="+foreign, nil)
		r.Header.Set("Accept-Language", language)
		if got := read(t, g.send(r)); !strings.Contains(got, `"en-US,en;q=0.9"`) {
			t.Errorf("%s: %s", language, got)
		}
	}
}

// validatingServer is a FHIR server that counts operations and sends the same response to each.
type validatingServer struct {
	status   int
	body     string
	requests atomic.Int64
}

func (v *validatingServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	v.requests.Add(1)
	w.Header().Set("Content-Type", "application/fhir+json")
	w.WriteHeader(v.status)
	_, _ = io.WriteString(w, v.body)
}

// TestValidationIsForwarded checks that a validation that depends on missing definitions is forwarded and its response stored.
// If other servers cannot validate either, the client gets the provisional local response.
func TestValidationIsForwarded(t *testing.T) {
	t.Parallel()
	const (
		validate  = "CodeSystem/$validate-code?url=http://snomed.info/sct&code=138875005"
		member    = "ValueSet/$validate-code?url=" + genderSet + "&system=http://snomed.info/sct&code=138875005"
		translate = "ConceptMap/$translate?system=http://snomed.info/sct&code=138875005"
		good      = `{"resourceType":"Parameters","parameter":[{"name":"result","valueBoolean":true},{"name":"message","valueString":"theirs"}]}`
		refused   = `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found","diagnostics":"theirs"}]}`
		theirs    = `"theirs"`
		ours      = `"valueBoolean":false`
	)
	tests := []struct {
		name, query, want string
		status            int
		body              string
		wantStored        bool
	}{
		{"a code system", validate, theirs, 200, good, true},
		{"a value set", member, theirs, 200, good, true},
		{"concept maps", translate, theirs, 200, good, true},
		{"unknown at the server too", validate, ours, 404, refused, true},
		{"operation not supported by the server", translate, ours, 501, refused, false},
		{"not a FHIR server", validate, ours, 404, "theirs", false},
		{"unrelated response", validate, ours, 200, "theirs", false},
		{"the server rejects the credentials", member, ours, 401, "", false},
	}
	for _, who := range []string{"next handler", "upstream"} {
		for _, tt := range tests {
			t.Run(who+" "+tt.name, func(t *testing.T) {
				terminologytest.RequireFeatures(t, tt.query)
				server := &validatingServer{status: tt.status, body: tt.body}
				stored := settings{all: true, cache: cache.Options{NegativeTTL: time.Hour, FailureTTL: -1}}
				g := newSiteBefore(t, who, stored, server)
				for _, method := range []string{"GET", "GET", "HEAD"} {
					response := g.send(httptest.NewRequest(method, "/fhir/R4/"+tt.query, nil))
					got := read(t, response)
					if response.StatusCode != http.StatusOK || method == "GET" && !strings.Contains(got, tt.want) || !strings.Contains(response.Header.Get("Cache-Control"), "no-cache") {
						t.Errorf("%s: %d %v %s", method, response.StatusCode, response.Header, got)
					}
				}
				if n := server.requests.Load(); (n == 1) != tt.wantStored {
					t.Errorf("%d requests", n)
				}
				uncached := newSiteBefore(t, who, settings{all: true, off: true}, server)
				if got := read(t, uncached.get("/fhir/R4/"+tt.query)); tt.body != "theirs" && !strings.Contains(got, tt.want) {
					t.Errorf("past the cache: %s", got)
				}
				xml := read(t, g.get("/fhir/R4/"+tt.query+"&_format=xml"))
				if tt.want == ours && terminologytest.HasFeature("xml") && !strings.Contains(xml, `<valueBoolean value="false"/>`) {
					t.Errorf("as XML: %s", xml)
				}
			})
		}
	}
}

// TestPostedValidationIsForwarded checks that a POST is forwarded with its full body if definitions are missing.
func TestPostedValidationIsForwarded(t *testing.T) {
	terminologytest.RequireFeatures(t, "CodeSystem/$validate-code")
	t.Parallel()
	g := newSite(t, settings{all: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = fmt.Fprintf(w, `{"resourceType":"Parameters","parameter":[{"name":"theirs","resource":%s}]}`, body)
	}))
	for system, want := range map[string]bool{"http://snomed.info/sct": true, "http://hl7.org/fhir/administrative-gender": false} {
		body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"` + system + `"},{"name":"code","valueCode":"nobody"}]}`
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/CodeSystem/$validate-code", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/fhir+json")
		if got := read(t, g.send(r)); strings.Contains(got, `"theirs","resource":`+body) != want {
			t.Errorf("%s: %s", system, got)
		}
	}
}
