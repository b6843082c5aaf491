package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// shelf is a Source in memory that notes what it is asked for.
type shelf struct {
	mu        sync.Mutex
	resources []string
	asked     []string
	err       error
	wait      chan struct{} // nil: answers at once
}

func (s *shelf) Definitions(ctx context.Context, m outcome.Missing) (found []jsontext.Value, err error) {
	s.mu.Lock()
	s.asked = append(s.asked, m.String())
	s.mu.Unlock()
	if s.wait != nil {
		select {
		case <-s.wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range s.resources { // all of them: the wrong ones are to be passed over
		found = append(found, jsontext.Value(resource))
	}
	return found, s.err
}

func (s *shelf) set(err error, resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources, s.err = resources, err
}

func (s *shelf) wantAsked(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("asked for\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	s.asked = nil
}

// versionedSystem returns a CodeSystem with the given codes.
func versionedSystem(url, version, content, codes string) string {
	var concepts []string
	for code := range strings.FieldsSeq(codes) {
		concepts = append(concepts, fmt.Sprintf(`{"code":%q,"display":"Display %s"}`, code, code))
	}
	return fmt.Sprintf(`{"resourceType":"CodeSystem","id":"cs","url":%q,"version":%q,"status":"active","content":%q,"concept":[%s]}`, url, version, content, strings.Join(concepts, ","))
}

// composedOf returns a ValueSet with the given includes.
func composedOf(url, version, include string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","id":"vs-%s","url":%q,"version":%q,"status":"active","compose":{"include":[%s]}}`, version, url, version, include)
}

func TestFetched(t *testing.T) {
	const of = `{"system":"http://x/cs"}`
	tests := []struct {
		name, url string
		loaded    []string // beside something to load
		there     []string
		codes     string
		asked     string
	}{
		{"value set and code system", "http://x/vs", nil, []string{composedOf("http://x/vs", "1", of), versionedSystem("http://x/cs", "1", "complete", "a b")},
			"a b", "ValueSet http://x/vs, CodeSystem http://x/cs"},
		{"code system alone", "http://x/vs", []string{composedOf("http://x/vs", "1", of)}, []string{versionedSystem("http://x/cs", "1", "complete", "a b")}, "a b", "CodeSystem http://x/cs"},
		{"imports", "http://x/vs", nil, []string{composedOf("http://x/vs", "1", `{"valueSet":["http://x/a"]},{"valueSet":["http://x/b|2"]}`),
			composedOf("http://x/a", "1", `{"system":"http://x/cs","concept":[{"code":"a"}]}`), composedOf("http://x/b", "2", `{"valueSet":["http://x/c"]}`), composedOf("http://x/b", "3", `{"valueSet":["http://x/d"]}`),
			composedOf("http://x/c", "1", of), versionedSystem("http://x/cs", "1", "complete", "b a")},
			"a b", "ValueSet http://x/vs, ValueSet http://x/a, ValueSet http://x/b|2, ValueSet http://x/c, CodeSystem http://x/cs"},
		{"the newest", "http://x/vs", nil, []string{composedOf("http://x/vs", "1.9", `{"system":"http://x/cs","version":"1"}`), composedOf("http://x/vs", "1.10", of),
			versionedSystem("http://x/cs", "1", "complete", "a"), versionedSystem("http://x/cs", "2", "complete", "b")}, "b", "ValueSet http://x/vs, CodeSystem http://x/cs"},
		{"the version named", "http://x/vs|1", nil, []string{composedOf("http://x/vs", "2", of), composedOf("http://x/vs", "1", `{"system":"http://x/cs","version":"1"}`),
			versionedSystem("http://x/cs", "1", "complete", "a"), versionedSystem("http://x/cs", "2", "complete", "b")}, "a", "ValueSet http://x/vs|1, CodeSystem http://x/cs|1"},
		{"listed codes", "http://x/vs|1", nil, []string{composedOf("http://x/vs", "1", `{"system":"http://x/cs","concept":[{"code":"a"}]}`)}, "a", "ValueSet http://x/vs|1"},
		{"one with concepts before one without", "http://x/vs", []string{composedOf("http://x/vs", "1", of)},
			[]string{versionedSystem("http://x/cs", "2", "not-present", ""), versionedSystem("http://x/cs", "1", "complete", "a")}, "a", "CodeSystem http://x/cs"},
		{"in place of one without concepts", "http://x/vs", []string{composedOf("http://x/vs", "1", of), versionedSystem("http://x/cs", "1", "not-present", "")},
			[]string{versionedSystem("http://x/cs", "1", "complete", "a")}, "a", "CodeSystem http://x/cs"},
		{"in place of one without compose", "http://x/vs", []string{`{"resourceType":"ValueSet","url":"http://x/vs","version":"1","status":"active"}`, versionedSystem("http://x/cs", "1", "complete", "a")},
			[]string{composedOf("http://x/vs", "1", of)}, "a", "ValueSet http://x/vs|1"},
		{"fragment", "http://x/vs", []string{composedOf("http://x/vs", "1", of)}, []string{versionedSystem("http://x/cs", "1", "fragment", "a")}, "a", "CodeSystem http://x/cs"},
		{"implied", "http://x/cs?fhir_vs", nil, []string{versionedSystem("http://x/cs", "1", "complete", "a")}, "a", "CodeSystem http://x/cs"},
		{"beside an older version that is loaded", "http://x/vs", []string{composedOf("http://x/vs", "1", `{"system":"http://x/cs","version":"1"},{"system":"http://x/cs"}`), versionedSystem("http://x/cs", "2", "complete", "b")},
			[]string{versionedSystem("http://x/cs", "1", "complete", "a")}, "a b", "CodeSystem http://x/cs|1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			source := &shelf{resources: test.there}
			base := libraryOf(t, append(test.loaded, `{"resourceType":"ValueSet","url":"http://x/other","status":"active"}`)...)
			before := base.Counts()
			h := &Handler{Library: base, Fetched: &terminology.Fetched{Source: source}}
			for range 2 {
				got := expandWith(t, h, "url", test.url)
				wantCodes(t, got, test.codes)
			}
			source.wantAsked(t, strings.Split(test.asked, ", ")...)
			if base.Counts() != before {
				t.Errorf("the library below was changed: %v", base.Counts())
			}
			refused(t, base, "url", test.url)
			if n, bytes := h.Fetched.Held(); n == 0 || bytes == 0 {
				t.Errorf("holds %d, %d bytes", n, bytes)
			}
		})
	}
}

func TestFetchedByID(t *testing.T) {
	source := &shelf{resources: []string{composedOf("http://x/vs", "1", `{"system":"http://x/cs","concept":[{"code":"a"}]}`)}}
	h := &Handler{Library: libraryOf(t, versionedSystem("http://x/cs", "1", "complete", "a")), Fetched: &terminology.Fetched{Source: source}}
	w := httptest.NewRecorder()
	if err := h.Expand(w, httptest.NewRequest("GET", "/ValueSet/vs-1/$expand", nil)); err != nil || !strings.Contains(w.Body.String(), `"code":"a"`) {
		t.Errorf("got %v, %s", err, w.Body)
	}
	source.wantAsked(t, "ValueSet vs-1")
}

func TestFetchedForValidation(t *testing.T) {
	source := &shelf{resources: []string{
		composedOf("http://x/vs", "1", `{"valueSet":["http://x/part"]}`), composedOf("http://x/part", "1", `{"system":"http://x/cs"}`), versionedSystem("http://x/cs", "1", "complete", "a"),
	}}
	h := &Handler{Library: libraryOf(t, gone), Fetched: &terminology.Fetched{Source: source}}
	const query = `/ValueSet/$validate-code?url=http://x/vs&system=http://x/cs&code=`
	for code, want := range map[string]string{"a": `{"name":"result","valueBoolean":true}`, "b": `{"name":"result","valueBoolean":false}`} {
		w := httptest.NewRecorder()
		if err := h.ValidateCode(w, httptest.NewRequest("GET", query+code, nil)); err != nil || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %v, %s", code, err, w.Body)
		}
	}
	if len(source.asked) != 3 {
		t.Errorf("asked for %q", source.asked)
	}
	h.Fetched = &terminology.Fetched{Source: source}
	batch := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/vs"},{"name":"validation","resource":{"resourceType":"Parameters","parameter":[
		{"name":"coding","valueCoding":{"system":"http://x/cs","code":"a"}}]}}]}`
	w := httptest.NewRecorder()
	if err := h.BatchValidateCode(w, httptest.NewRequest("POST", "/ValueSet/$batch-validate-code", strings.NewReader(batch))); err != nil || !strings.Contains(w.Body.String(), `{"name":"result","valueBoolean":true}`) {
		t.Errorf("batch: got %v, %s", err, w.Body)
	}
	source.set(nil)
	h.Fetched = &terminology.Fetched{Source: source}
	w = httptest.NewRecorder()
	if err := h.ValidateCodeInSystem(w, httptest.NewRequest("GET", "/CodeSystem/$validate-code?url=http://x/cs&code=a", nil)); err != nil || !strings.Contains(w.Body.String(), "x-unknown-system") {
		t.Errorf("not there: got %v, %s", err, w.Body)
	}
}

func TestFetchedCodeSystems(t *testing.T) {
	source := &shelf{resources: []string{versionedSystem("http://x/cs", "1", "complete", "a")}}
	h := &Handler{Library: libraryOf(t, gone), Fetched: &terminology.Fetched{Source: source}}
	for name, operation := range map[string]func(http.ResponseWriter, *http.Request) error{"$validate-code": h.ValidateCodeInSystem, "$lookup": h.Lookup} {
		w := httptest.NewRecorder()
		err := operation(w, httptest.NewRequest("GET", "/CodeSystem/"+name+"?code=a&url=http://x/cs&system=http://x/cs", nil))
		if err != nil || !strings.Contains(w.Body.String(), "Display a") || strings.Contains(w.Body.String(), `"valueBoolean":false},{"name":"issues"`) {
			t.Errorf("%s: got %v, %s", name, err, w.Body)
		}
	}
	source.wantAsked(t, "CodeSystem http://x/cs")
}

// gone is a definition for a library that has nothing else.
const gone = `{"resourceType":"ValueSet","url":"http://x/gone","status":"active","compose":{"include":[{"system":"http://x/gone-cs"}]}}`

// toldError is an error that says what to tell.
type toldError struct{ error }

func (toldError) HTTPStatus() int     { return 504 }
func (toldError) IssueType() string   { return "timeout" }
func (toldError) Diagnostics() string { return "the backend did not answer in time" }

func TestFetchedFailures(t *testing.T) {
	tests := []struct {
		name, url string
		there     []string
		err       error
		is        error
		status    int
		asked     int // in two requests
	}{
		{"not there", "http://x/vs", nil, nil, outcome.ErrUnknown, 404, 1},
		{"part not there", "http://x/gone", nil, nil, outcome.ErrIncomplete, 422, 1},
		{"without its concepts", "http://x/gone", []string{versionedSystem("http://x/gone-cs", "1", "not-present", "")}, nil, outcome.ErrIncomplete, 422, 1},
		{"fails", "http://x/vs", nil, errors.New("dial tcp 10.1.2.3: refused"), nil, 502, 2},
		{"fails and says how", "http://x/vs", nil, toldError{errors.New("hidden")}, nil, 504, 2},
		{"garbage", "http://x/vs", []string{`{"resourceType":`}, nil, nil, 502, 2},
		{"broken", "http://x/vs", []string{`{"resourceType":"ValueSet","url":"http://x/vs","compose":{"include":{}}}`}, nil, nil, 502, 2},
		{"too large", "http://x/vs", []string{composedOf("http://x/vs", strings.Repeat("1", 2000), "")}, nil, nil, 422, 2},
		{"without an end", "http://x/n0", nil, nil, nil, 422, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			source := &shelf{resources: test.there, err: test.err}
			h := &Handler{Library: libraryOf(t, gone), Fetched: &terminology.Fetched{Source: source, MaxBytes: 2000}}
			if test.name == "without an end" {
				h.Fetched.Source, h.Fetched.MaxBytes = endless{}, 0
			}
			for range 2 {
				_, err := request(h, http.MethodGet, query("url", test.url))
				var e *outcome.Error
				if !errors.As(err, &e) || e.Status != test.status || test.is != nil && !errors.Is(err, test.is) || test.is == nil && test.asked > 0 && errors.Is(err, outcome.ErrUnknown) {
					t.Fatalf("got %v", err)
				}
				if strings.Contains(e.Diagnostics(), "10.1.2.3") {
					t.Errorf("an address in %q", e.Diagnostics())
				}
			}
			if len(source.asked) != test.asked {
				t.Errorf("asked %q", source.asked)
			}
		})
	}
}

// endless has value sets each of which imports another.
type endless struct{}

func (endless) Definitions(_ context.Context, m outcome.Missing) ([]jsontext.Value, error) {
	var n int
	if _, err := fmt.Sscanf(m.Canonical, "http://x/n%d", &n); err != nil {
		return nil, err
	}
	return []jsontext.Value{jsontext.Value(composedOf(m.Canonical, "1", fmt.Sprintf(`{"valueSet":["http://x/n%d"]}`, n+1)))}, nil
}

func TestFetchedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &shelf{resources: []string{versionedSystem("http://x/gone-cs", "1", "complete", "a")}, wait: make(chan struct{})}
		h := &Handler{Library: libraryOf(t, gone), Fetched: &terminology.Fetched{Source: source}}
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 10)
		for i := range 10 {
			go func() {
				r := httptest.NewRequest("GET", "/ValueSet/$expand?url=http://x/gone", nil)
				if i == 0 {
					r = r.WithContext(ctx)
				}
				results <- h.Expand(httptest.NewRecorder(), r)
			}()
			synctest.Wait()
		}
		cancel() // the one that asked first goes away; the others are answered
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(source.wait)
		for range 9 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		source.wantAsked(t, "CodeSystem http://x/gone-cs")
	})
}

func TestFetchedAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := versionedSystem("http://x/gone-cs", "1", "complete", "a"), versionedSystem("http://x/gone-cs", "1", "complete", "b")
		source := &shelf{resources: []string{old}}
		var changed []string
		f := &terminology.Fetched{Source: source, TTL: time.Hour, MissingTTL: time.Minute, MaxStale: 10 * time.Hour}
		f.Changed = func(url string) { changed = append(changed, url) }
		h := &Handler{Library: libraryOf(t, gone), Fetched: f}
		const it = "CodeSystem http://x/gone-cs"
		step := func(codes string, asked ...string) {
			t.Helper()
			w, err := request(h, http.MethodGet, query("url", "http://x/gone"))
			if codes == "" && err == nil || codes != "" && (err != nil || !strings.Contains(w.Body.String(), `"code":"`+codes+`"`)) {
				t.Errorf("got %v, %s, want code %q", err, w.Body, codes)
			}
			synctest.Wait()
			source.wantAsked(t, asked...)
		}
		step("a", it)
		source.set(nil, young)
		time.Sleep(time.Hour - time.Second)
		step("a")
		time.Sleep(time.Second)
		step("a", it) // the old one, while the new one is fetched
		step("b")
		source.set(errors.New("down"))
		time.Sleep(time.Hour)
		step("b", it)
		time.Sleep(30 * time.Second)
		step("b") // not asked again at once
		source.set(errors.New("down"), "garbage")
		time.Sleep(30 * time.Second)
		step("b", it)
		time.Sleep(10 * time.Hour)
		step("b", it) // which finds that it is too old
		step("", it)
		source.set(nil, young)
		step("b", it)
		source.set(nil)
		time.Sleep(time.Hour)
		step("b", it) // which finds that it is gone
		step("", it)
		step("")
		source.set(nil, old)
		time.Sleep(time.Minute)
		step("a", it)
		if want := slices.Repeat([]string{"http://x/gone-cs"}, 3); !slices.Equal(changed, want) { // another one, too old, gone
			t.Errorf("told of %q", changed)
		}
		source.set(nil, young)
		time.Sleep(time.Hour)
		f.Renew()
		synctest.Wait()
		source.wantAsked(t, it)
		step("b")
	})
}

func TestFetchedForget(t *testing.T) {
	for _, reference := range []string{"http://x/gone-cs", "http://x/gone-cs|1", "CodeSystem/cs", ""} {
		source := &shelf{resources: []string{versionedSystem("http://x/gone-cs", "1", "complete", "a")}}
		h := &Handler{Library: libraryOf(t, gone), Fetched: &terminology.Fetched{Source: source}}
		wantCodes(t, expandWith(t, h, "url", "http://x/gone"), "a")
		source.set(nil, versionedSystem("http://x/gone-cs", "1", "complete", "b"))
		h.Fetched.Forget("http://x/other")
		wantCodes(t, expandWith(t, h, "url", "http://x/gone"), "a")
		h.Fetched.Forget(reference)
		wantCodes(t, expandWith(t, h, "url", "http://x/gone"), "b")
		if n, _ := h.Fetched.Held(); n != 1 {
			t.Errorf("holds %d", n)
		}
	}
}

func TestFetchedBound(t *testing.T) {
	f := &terminology.Fetched{Source: made{}, MaxBytes: 2000}
	h := &Handler{Library: libraryOf(t, gone), Fetched: f}
	for round := range 2 {
		for i := range 50 {
			wantCodes(t, expandWith(t, h, "url", fmt.Sprintf("http://x/%d", i)), fmt.Sprintf("c%d", i))
			if n, bytes := f.Held(); bytes > 2000 || n > 20 || n == 0 {
				t.Fatalf("round %d: holds %d, %d bytes", round, n, bytes)
			}
		}
	}
	f.MaxBytes = 0
	for i := range 50 { // more than are stacked
		wantCodes(t, expandWith(t, h, "url", fmt.Sprintf("http://x/%d", i)), fmt.Sprintf("c%d", i))
	}
	for i := range 50 {
		wantCodes(t, expandWith(t, h, "url", fmt.Sprintf("http://x/%d", i)), fmt.Sprintf("c%d", i))
	}
	if n, _ := f.Held(); n != 50 {
		t.Errorf("holds %d", n)
	}
	h.Library = libraryOf(t, composedOf("http://x/1", "2", `{"system":"http://x/cs","concept":[{"code":"other"}]}`))
	wantCodes(t, expandWith(t, h, "url", "http://x/1"), "other")
	wantCodes(t, expandWith(t, h, "url", "http://x/2"), "c2")
}

// made makes a value set of any url.
type made struct{}

func (made) Definitions(_ context.Context, m outcome.Missing) ([]jsontext.Value, error) {
	code := "c" + m.Canonical[strings.LastIndexByte(m.Canonical, '/')+1:]
	return []jsontext.Value{jsontext.Value(composedOf(m.Canonical, "1", fmt.Sprintf(`{"system":"http://x/cs","concept":[{"code":%q}]}`, code)))}, nil
}

// What was asked for before a write is not kept after it.
func TestForgottenWhileFetched(t *testing.T) {
	const of = `{"system":"http://x/cs","concept":[{"code":"%s"}]}`
	source := &shelf{resources: []string{composedOf("http://x/vs", "1", fmt.Sprintf(of, "old"))}}
	written := &writtenMeanwhile{shelf: source}
	h := &Handler{Library: libraryOf(t, `{"resourceType":"ValueSet","url":"http://x/other","status":"active"}`), Fetched: &terminology.Fetched{Source: written}}
	written.write = func() {
		source.set(nil, composedOf("http://x/vs", "1", fmt.Sprintf(of, "new")))
		h.Fetched.Forget("http://x/vs")
	}
	wantCodes(t, expandWith(t, h, "url", "http://x/vs"), "new")
}

// writtenMeanwhile has something written after it has been asked first, and before it answers.
type writtenMeanwhile struct {
	*shelf
	write func()
}

func (s *writtenMeanwhile) Definitions(ctx context.Context, m outcome.Missing) ([]jsontext.Value, error) {
	found, err := s.shelf.Definitions(ctx, m)
	if write := s.write; write != nil {
		s.write = nil
		write()
	}
	return found, err
}
