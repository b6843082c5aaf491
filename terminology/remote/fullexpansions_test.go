package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// engine returns a handler that expands the built-in value sets.
func engine(t *testing.T) http.HandlerFunc {
	t.Helper()
	h := &api.Handler{Library: terminologytest.Core(t)}
	return func(w http.ResponseWriter, r *http.Request) {
		var failed *outcome.Error
		if err := h.Expand(w, r); errors.As(err, &failed) {
			w.Header().Set("Content-Type", fhirJSON)
			w.WriteHeader(failed.Status)
			_, _ = w.Write(failed.OperationOutcome())
		}
	}
}

// pullThroughTest is a terminology server and a FullExpansions in a synctest bubble.
type pullThroughTest struct {
	*FullExpansions
	server   *Server
	synonyms *textindex.Synonyms
	requests atomic.Int32
	log      bytes.Buffer
}

// runInBubble runs a test in a synctest bubble. The test's server uses the handler h.
func runInBubble(t *testing.T, h http.HandlerFunc, test func(t *testing.T, a *pullThroughTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := new(pullThroughTest)
		p := pipes{make(chan net.Conn), make(chan struct{})}
		backend := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.requests.Add(1); h(w, r) })}
		go func() { _ = backend.Serve(p) }()
		transport := &http.Transport{DialContext: p.dial}
		var err error
		if a.server, err = NewServer(Options{Base: "https://tx.example", Transport: plainHTTPTransport{transport}}); err != nil {
			t.Fatal(err)
		}
		a.FullExpansions = &FullExpansions{Logger: slog.New(slog.NewTextHandler(&a.log, nil))}
		test(t, a)
		transport.CloseIdleConnections()
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// expandRequest returns an $expand request with the given parameters, which are alternating names and values.
func expandRequest(pairs ...string) Request {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return Request{Path: "ValueSet/$expand", Query: values.Encode()}
}

// ask sends a request as the gateway does. here reports whether the response is from a full expansion instead of the server.
func (a *pullThroughTest) ask(t *testing.T, pairs ...string) (body []byte, here bool) {
	t.Helper()
	q := expandRequest(pairs...)
	answer, err := a.Respond(a.server, ParseRequest(q), a.synonyms)
	if err != nil {
		t.Fatal(err)
	}
	if here = answer != nil; !here {
		if answer, err = a.server.Do(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		a.RecordResponse(a.server, ParseRequest(q), answer)
		synctest.Wait()
	}
	return answer.Body, here
}

// want sends a request and checks whether the response is from a full expansion.
func (a *pullThroughTest) want(t *testing.T, here bool, pairs ...string) []byte {
	t.Helper()
	body, was := a.ask(t, pairs...)
	if was != here {
		t.Errorf("%q: answered here is %t; %s", pairs, was, &a.log)
	}
	return body
}

// heat sends requests with five different filters to the server, so that the expansion is fetched.
func (a *pullThroughTest) heat(t *testing.T, pairs ...string) {
	t.Helper()
	for _, filter := range []string{"a", "ab", "abc", "abcd", "abcde"} {
		a.want(t, false, append(pairs, "filter", filter)...)
	}
}

// contains returns expansion.contains and expansion.total.
func contains(t *testing.T, body []byte) (list []any, total int) {
	t.Helper()
	var vs struct {
		Expansion struct {
			Total    int   `json:"total"`
			Contains []any `json:"contains"`
		} `json:"expansion"`
	}
	if err := json.Unmarshal(body, &vs); err != nil {
		t.Fatal(err)
	}
	return vs.Expansion.Contains, vs.Expansion.Total
}

const actCode = "http://terminology.hl7.org/ValueSet/v3-ActCode"

func TestPullThrough(t *testing.T) {
	runInBubble(t, engine(t), func(t *testing.T, a *pullThroughTest) {
		a.PageSize = 100
		for range 10 {
			a.want(t, false, "url", actCode, "activeOnly", "true", "filter", "same", "count", "5")
		}
		a.heat(t, "url", actCode, "count", "20")
		before := a.requests.Load()
		if n, size := a.CacheUsage(); n != 1 || size == 0 || before < 15+10 {
			t.Fatalf("stored %d, %d bytes, %d requests: %s", n, size, before, &a.log)
		}
		for _, filter := range []string{"d", "di", "dia", "amb", "emergency care", "IMP", "ipmatient", "xyz"} {
			for _, count := range []int{0, 1, 20, 1000} {
				pairs := []string{"url", actCode, "filter", filter, "count", strconv.Itoa(count), "offset", "1"}
				here, n := contains(t, a.want(t, true, pairs...))
				answer, err := a.server.Do(t.Context(), expandRequest(pairs...))
				if err != nil {
					t.Fatal(err)
				}
				there, total := contains(t, answer.Body)
				if len(here) != len(there) || n != total {
					t.Errorf("%q, %d: got %d %v, there %d %v", filter, count, n, here, total, there)
				}
			}
		}
		if requests := a.requests.Load(); requests != before+8*4 {
			t.Errorf("%d requests besides the comparison", requests-before-8*4)
		}
		a.want(t, true, "url", actCode, "count", "20")
		a.want(t, true, "url", actCode, "offset", "1")
		a.want(t, false, "url", actCode, "offset", "0")   // requests the full expansion, which may be a tree
		a.want(t, false, "url", actCode, "count", "5000") // requests the full expansion too
		for _, other := range [][]string{{"displayLanguage", "de"}, {"activeOnly", "true"}, {"_format", "ttl"}, {"_pretty", "true"}} {
			q := expandRequest(append(other, "url", actCode, "filter", "a", "count", "2")...)
			if answer, err := a.Respond(a.server, ParseRequest(q), a.synonyms); answer != nil || err != nil {
				t.Errorf("%v: got %v, %v", other, answer, err)
			}
		}
		malformed := expandRequest("url", actCode, "filter", "a", "count", "2")
		malformed.Query += "&a;b"
		if answer, err := a.Respond(a.server, ParseRequest(malformed), nil); answer != nil || err != nil {
			t.Errorf("malformed: got %v, %v", answer, err)
		}
		a.MaxResponseEntries = 1
		if _, err := a.Respond(a.server, ParseRequest(expandRequest("url", actCode, "filter", "a", "count", "2")), nil); err == nil {
			t.Error("gave more than it may")
		}
	})
}

// TestPullThroughSynonyms checks that a filter uses synonyms once the expansion has been fetched. The server has no synonyms.
func TestPullThroughSynonyms(t *testing.T) {
	runInBubble(t, engine(t), func(t *testing.T, a *pullThroughTest) {
		a.synonyms = new(textindex.Synonyms)
		if err := a.synonyms.Read(strings.NewReader("er => emergency")); err != nil {
			t.Fatal(err)
		}
		a.heat(t, "url", actCode, "count", "20")
		want, _ := contains(t, a.want(t, true, "url", actCode, "filter", "emergency", "count", "20"))
		got, _ := contains(t, a.want(t, true, "url", actCode, "filter", "er", "count", "1000"))
		for _, entry := range want {
			if !slices.ContainsFunc(got, func(g any) bool { return reflect.DeepEqual(g, entry) }) {
				t.Errorf("%v is not among what er finds", entry)
			}
		}
	})
}

// TestPullThroughPosted checks that a full expansion is used regardless of the HTTP method and the format of the request.
func TestPullThroughPosted(t *testing.T) {
	posted := func(contentType, body string) Request {
		return Request{Method: http.MethodPost, Path: "ValueSet/$expand", ContentType: contentType, Body: []byte(body)}
	}
	parametersJSON := func(more string) Request {
		return posted(fhirJSON, `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"`+actCode+`"},{"name":"count","valueInteger":3},{"name":"filter","valueString":"emergency"}`+more+`]}`)
	}
	inXML := expandRequest("url", actCode, "count", "3", "filter", "emergency")
	inXML.Accept = "application/fhir+xml"
	runInBubble(t, engine(t), func(t *testing.T, a *pullThroughTest) {
		a.PageSize = 100
		a.heat(t, "url", actCode, "count", "20")
		want, _ := contains(t, a.want(t, true, "url", actCode, "count", "3", "filter", "emergency"))
		for name, tt := range map[string]struct {
			q    Request
			here bool
		}{
			"Parameters": {parametersJSON(""), true},
			"Parameters in XML": {posted("application/fhir+xml; charset=utf-8", `<Parameters xmlns="http://hl7.org/fhir"><parameter><name value="url"/><valueUri value="`+actCode+
				`"/></parameter><parameter><name value="count"/><valueInteger value="3"/></parameter><parameter><name value="filter"/><valueString value="emergency"/></parameter></Parameters>`), true},
			"a form":                 {posted("application/x-www-form-urlencoded", expandRequest("url", actCode, "count", "3", "filter", "emergency").Query), true},
			"the answer in XML":      {inXML, true},
			"with a resource":        {parametersJSON(`,{"name":"valueSet","resource":{"resourceType":"ValueSet"}}`), false},
			"with a coding":          {parametersJSON(`,{"name":"coding","valueCoding":{"code":"a"}}`), false},
			"with an extension":      {parametersJSON(`,{"name":"activeOnly","valueBoolean":true,"_valueBoolean":{}}`), false},
			"with another parameter": {parametersJSON(`,{"name":"activeOnly","valueBoolean":true}`), false},
			"a value set":            {posted(fhirJSON, `{"resourceType":"ValueSet","url":"`+actCode+`"}`), false},
			"nothing":                {posted(fhirJSON, ""), false},
		} {
			if strings.Contains(name, "XML") && !negotiation.HasXML() {
				continue
			}
			answer, err := a.Respond(a.server, ParseRequest(tt.q), nil)
			if err != nil || (answer != nil) != tt.here {
				t.Errorf("%s: %+v, %v", name, answer, err)
				continue
			}
			if answer == nil {
				continue
			}
			body := answer.Body
			if name == "the answer in XML" {
				if body, err = negotiation.AppendJSON(nil, body); err != nil || answer.Header.Get("Content-Type") != "application/fhir+xml" {
					t.Fatal(answer.Header, err)
				}
			}
			if got, _ := contains(t, body); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	})
}

// changingServer is a server that returns an expansion page by page. Pages can be inconsistent.
type changingServer struct {
	mu      sync.Mutex
	codes   []string
	overlap int
	cache   string
	status  int
}

func (c *changingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, _ := strconv.Atoi(r.FormValue("offset"))
	count, _ := strconv.Atoi(r.FormValue("count"))
	if from > 0 {
		from -= c.overlap
	}
	var entries []string
	for _, code := range c.codes[min(from, len(c.codes)):min(from+count, len(c.codes))] {
		entries = append(entries, fmt.Sprintf(`{"system":"http://x","code":%q}`, code))
	}
	w.Header().Set("Content-Type", fhirJSON)
	w.Header().Set("Cache-Control", c.cache)
	if c.status != 0 && r.FormValue("filter") == "" {
		w.WriteHeader(c.status)
	}
	_, _ = io.WriteString(w, fmt.Sprintf(`{"resourceType":"ValueSet","expansion":{"total":%d,"contains":[%s]}}`, len(c.codes), strings.Join(entries, ",")))
}

// set changes the behavior of the server.
func (c *changingServer) set(change func(*changingServer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// letters returns the codes of an expansion.
func letters() []string { return strings.Split("a1 a2 a3 a4 a5 a6 a7", " ") }

// many returns more codes than MaxEntries in the tests.
func many() (codes []string) {
	for i := range 60 {
		codes = append(codes, fmt.Sprintf("a%d", i))
	}
	return codes
}

func TestPullThroughGivesUp(t *testing.T) {
	tests := []struct {
		name       string
		fault, fix func(*changingServer)
		reason     string
	}{
		{"pages that overlap", func(c *changingServer) { c.overlap = 1 }, func(c *changingServer) { c.overlap = 0 }, "are inconsistent"},
		{"too large", func(c *changingServer) { c.codes = many() }, func(c *changingServer) { c.codes = letters() }, "too large"},
		{"no-store", func(c *changingServer) { c.cache = "no-store" }, func(c *changingServer) { c.cache = "" }, "does not allow its response to be stored"},
		{"private", func(c *changingServer) { c.cache = "max-age=60, private" }, func(c *changingServer) { c.cache = "" }, "does not allow its response to be stored"},
		{"failing", func(c *changingServer) { c.status = 500 }, func(c *changingServer) { c.status = 0 }, "failed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &changingServer{codes: letters()}
			test.fault(c)
			runInBubble(t, c.ServeHTTP, func(t *testing.T, a *pullThroughTest) {
				a.PageSize, a.MaxEntries = 3, 50
				a.heat(t, "url", "http://x", "count", "2")
				if n, _ := a.CacheUsage(); n != 0 || !strings.Contains(a.log.String(), test.reason) {
					t.Errorf("holds %d; %s", n, &a.log)
				}
				c.set(test.fix)
				before := a.requests.Load()
				a.heat(t, "url", "http://x", "count", "2")
				a.heat(t, "url", "http://x", "count", "2")
				if n := a.requests.Load() - before; n != 10 {
					t.Errorf("%d requests for 10 queries within the pause", n)
				}
				time.Sleep(time.Hour)
				a.heat(t, "url", "http://x", "count", "2")
				a.want(t, true, "url", "http://x", "count", "2", "filter", "a")
			})
		})
	}
}

func TestPullThroughAges(t *testing.T) {
	c := &changingServer{codes: letters(), cache: "public, max-age=600"}
	runInBubble(t, c.ServeHTTP, func(t *testing.T, a *pullThroughTest) {
		first := func(here bool, want string) {
			t.Helper()
			list, _ := contains(t, a.want(t, here, "url", "http://x", "count", "1", "filter", want))
			if len(list) != 1 || !strings.HasPrefix(list[0].(map[string]any)["code"].(string), want) {
				t.Errorf("got %v", list)
			}
		}
		a.heat(t, "url", "http://x", "count", "2")
		time.Sleep(10*time.Minute - time.Second)
		first(true, "a")
		c.set(func(c *changingServer) { c.codes = []string{"b1", "b2", "b3"} })
		first(true, "a")
		time.Sleep(time.Second)
		first(false, "b") // the old expansion has expired
		first(true, "b")
		a.Forget("http://other")
		first(true, "b")
		a.Forget("http://x|1")
		first(false, "b")
		first(false, "b")
		if n, size := a.CacheUsage(); n != 0 || size != 0 {
			t.Errorf("holds %d, %d bytes", n, size)
		}
	})
}

// TestPullThroughOutage checks that an expired expansion is used while the server fails.
func TestPullThroughOutage(t *testing.T) {
	c := &changingServer{codes: letters(), cache: "public, max-age=600"}
	var down atomic.Bool
	server := func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		c.ServeHTTP(w, r)
	}
	runInBubble(t, server, func(t *testing.T, a *pullThroughTest) {
		a.MaxStale = time.Hour
		a.heat(t, "url", "http://x", "count", "2")
		stale := func(want bool) {
			t.Helper()
			q := ParseRequest(expandRequest("url", "http://x", "count", "2", "filter", "n"))
			if fresh, err := a.Respond(a.server, q, nil); err != nil || fresh != nil {
				t.Errorf("it is taken for fresh: %v, %v", fresh, err)
			}
			synctest.Wait()
			answer, err := a.RespondStale(a.server, q, nil)
			if (answer != nil) != want || err != nil || answer != nil && answer.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("got %v, %v, want an answer: %t", answer, err, want)
			}
		}
		down.Store(true)
		time.Sleep(10 * time.Minute)
		stale(true)
		before := a.requests.Load()
		stale(true)
		if n := a.requests.Load() - before; n != 0 {
			t.Errorf("%d requests within a minute", n)
		}
		time.Sleep(50 * time.Minute)
		stale(true)
		time.Sleep(10*time.Minute + time.Second)
		stale(false)
		down.Store(false)
		time.Sleep(time.Hour)
		a.heat(t, "url", "http://x", "count", "2")
		a.want(t, true, "url", "http://x", "count", "2", "filter", "n")
	})
}

// TestPullThroughRecovers checks that the server is used again after it recovers.
func TestPullThroughRecovers(t *testing.T) {
	c := &changingServer{codes: letters(), cache: "public, max-age=600"}
	runInBubble(t, c.ServeHTTP, func(t *testing.T, a *pullThroughTest) {
		a.MaxStale = time.Hour
		a.heat(t, "url", "http://x", "count", "2")
		time.Sleep(20 * time.Minute)
		a.want(t, false, "url", "http://x", "count", "2", "filter", "a")
		a.want(t, true, "url", "http://x", "count", "2", "filter", "a")
	})
}

func TestPullThroughBounds(t *testing.T) {
	c := &changingServer{codes: letters()}
	runInBubble(t, c.ServeHTTP, func(t *testing.T, a *pullThroughTest) {
		a.MaxBytes = 5000
		for i := range 20 {
			a.heat(t, "url", fmt.Sprintf("http://x/%d", i), "count", "2")
			time.Sleep(time.Second)
			if n, size := a.CacheUsage(); n == 0 || n > 5 || size > 5000 {
				t.Fatalf("holds %d, %d bytes; %s", n, size, &a.log)
			}
		}
		a.want(t, true, "url", "http://x/19", "count", "2", "filter", "a")
		fetched := strings.Count(a.log.String(), "full expansion fetched")
		for _, filter := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			a.want(t, false, "url", "http://x/0", "count", "2", "filter", filter)
			time.Sleep(time.Second)
		}
		if n := strings.Count(a.log.String(), "full expansion fetched"); n != fetched {
			t.Errorf("one that made room was fetched again at once: %d times", n-fetched)
		}
		for i := range maxRecords + 10 {
			a.want(t, false, "url", fmt.Sprintf("http://y/%d", i), "count", "2", "filter", "a")
		}
		if n, _ := a.records.Size(); n > maxRecords {
			t.Errorf("watches %d", n)
		}
	})
}

func TestPullThroughSearchesDesignations(t *testing.T) {
	l := terminologytest.Library(t, `{"resourceType":"CodeSystem","url":"http://x/cs","status":"active","content":"complete","valueSet":"http://x/vs","language":"en","concept":[
		{"code":"1","display":"Red","designation":[{"language":"de","value":"Rot"}]},{"code":"2","display":"Blue","designation":[{"language":"de","value":"Blau"}]},{"code":"3","display":"Rotten"}]}`)
	h := &api.Handler{Library: l}
	runInBubble(t, func(w http.ResponseWriter, r *http.Request) { _ = h.Expand(w, r) }, func(t *testing.T, a *pullThroughTest) {
		for _, params := range [][]string{{}, {"includeDesignations", "true"}, {"includeDesignations", "false"}, {"displayLanguage", "de"}} {
			params = append(params, "url", "http://x/vs", "count", "9")
			a.heat(t, params...)
			for _, filter := range []string{"rot", "red", "blu", "b"} {
				pairs := append(params, "filter", filter)
				here, n := contains(t, a.want(t, true, pairs...))
				answer, err := a.server.Do(t.Context(), expandRequest(pairs...))
				if err != nil {
					t.Fatal(err)
				}
				there, total := contains(t, answer.Body)
				if !reflect.DeepEqual(here, there) || n != total || n == 0 {
					t.Errorf("%q: got %d %v, there %d %v", pairs, n, here, total, there)
				}
			}
		}
	})
}

// TestPullThroughLimit checks that the default limits permit ICD-10-CM, but not an expansion that is several times as large.
func TestPullThroughLimit(t *testing.T) {
	for total, ok := range map[int]bool{98_186: true, 350_000: false} {
		var b expansion.FullExpansionBuilder
		page := fmt.Sprintf(`{"resourceType":"ValueSet","expansion":{"total":%d,"contains":[{"code":"A00"}]}}`, total)
		if _, err := b.Add([]byte(page), 1000); err != nil {
			t.Fatal(err)
		}
		if err := new(FullExpansions).checkSize(&b); (err == nil) != ok {
			t.Errorf("%d entries: %v", total, err)
		}
	}
}
