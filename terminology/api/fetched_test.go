package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestFetched(t *testing.T) {
	const of = `{"system":"http://x/cs"}`
	tests := []struct {
		name, url string
		loaded    []string // definitions loaded in addition to the fetched ones
		there     []string
		codes     string
		requested string
	}{
		{"value set and code system", "http://x/vs", nil, []string{fixture.ComposedValueSet("http://x/vs", "1", of), fixture.VersionedSystem("http://x/cs", "1", "complete", "a b")},
			"a b", "ValueSet http://x/vs, CodeSystem http://x/cs"},
		{"code system alone", "http://x/vs", []string{fixture.ComposedValueSet("http://x/vs", "1", of)}, []string{fixture.VersionedSystem("http://x/cs", "1", "complete", "a b")}, "a b", "CodeSystem http://x/cs"},
		{"imports", "http://x/vs", nil, []string{fixture.ComposedValueSet("http://x/vs", "1", `{"valueSet":["http://x/a"]},{"valueSet":["http://x/b|2"]}`),
			fixture.ComposedValueSet("http://x/a", "1", `{"system":"http://x/cs","concept":[{"code":"a"}]}`), fixture.ComposedValueSet("http://x/b", "2", `{"valueSet":["http://x/c"]}`), fixture.ComposedValueSet("http://x/b", "3", `{"valueSet":["http://x/d"]}`),
			fixture.ComposedValueSet("http://x/c", "1", of), fixture.VersionedSystem("http://x/cs", "1", "complete", "b a")},
			"a b", "ValueSet http://x/vs, ValueSet http://x/a, ValueSet http://x/b|2, ValueSet http://x/c, CodeSystem http://x/cs"},
		{"the newest", "http://x/vs", nil, []string{fixture.ComposedValueSet("http://x/vs", "1.9", `{"system":"http://x/cs","version":"1"}`), fixture.ComposedValueSet("http://x/vs", "1.10", of),
			fixture.VersionedSystem("http://x/cs", "1", "complete", "a"), fixture.VersionedSystem("http://x/cs", "2", "complete", "b")}, "b", "ValueSet http://x/vs, CodeSystem http://x/cs"},
		{"the version named", "http://x/vs|1", nil, []string{fixture.ComposedValueSet("http://x/vs", "2", of), fixture.ComposedValueSet("http://x/vs", "1", `{"system":"http://x/cs","version":"1"}`),
			fixture.VersionedSystem("http://x/cs", "1", "complete", "a"), fixture.VersionedSystem("http://x/cs", "2", "complete", "b")}, "a", "ValueSet http://x/vs|1, CodeSystem http://x/cs|1"},
		{"listed codes", "http://x/vs|1", nil, []string{fixture.ComposedValueSet("http://x/vs", "1", `{"system":"http://x/cs","concept":[{"code":"a"}]}`)}, "a", "ValueSet http://x/vs|1"},
		{"one with concepts before one without", "http://x/vs", []string{fixture.ComposedValueSet("http://x/vs", "1", of)},
			[]string{fixture.VersionedSystem("http://x/cs", "2", "not-present", ""), fixture.VersionedSystem("http://x/cs", "1", "complete", "a")}, "a", "CodeSystem http://x/cs"},
		{"in place of one without concepts", "http://x/vs", []string{fixture.ComposedValueSet("http://x/vs", "1", of), fixture.VersionedSystem("http://x/cs", "1", "not-present", "")},
			[]string{fixture.VersionedSystem("http://x/cs", "1", "complete", "a")}, "a", "CodeSystem http://x/cs"},
		{"in place of one without compose", "http://x/vs", []string{`{"resourceType":"ValueSet","url":"http://x/vs","version":"1","status":"active"}`, fixture.VersionedSystem("http://x/cs", "1", "complete", "a")},
			[]string{fixture.ComposedValueSet("http://x/vs", "1", of)}, "a", "ValueSet http://x/vs|1"},
		{"fragment", "http://x/vs", []string{fixture.ComposedValueSet("http://x/vs", "1", of)}, []string{fixture.VersionedSystem("http://x/cs", "1", "fragment", "a")}, "a", "CodeSystem http://x/cs"},
		{"implied", "http://x/cs?fhir_vs", nil, []string{fixture.VersionedSystem("http://x/cs", "1", "complete", "a")}, "a", "CodeSystem http://x/cs"},
		{"beside an older version that is loaded", "http://x/vs", []string{fixture.ComposedValueSet("http://x/vs", "1", `{"system":"http://x/cs","version":"1"},{"system":"http://x/cs"}`), fixture.VersionedSystem("http://x/cs", "2", "complete", "b")},
			[]string{fixture.VersionedSystem("http://x/cs", "1", "complete", "a")}, "a b", "CodeSystem http://x/cs|1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			source := &terminologytest.RecordingSource{Resources: test.there}
			base := terminologytest.Library(t, append(test.loaded, `{"resourceType":"ValueSet","url":"http://x/other","status":"active"}`)...)
			before := base.Definitions().Counts()
			h := &api.Handler{Library: base, FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}}
			for range 2 {
				got := terminologytest.ExpandWith(t, h, "url", test.url)
				terminologytest.WantCodes(t, got, test.codes)
			}
			source.WantRequested(t, strings.Split(test.requested, ", ")...)
			if base.Definitions().Counts() != before {
				t.Errorf("the library below was changed: %v", base.Definitions().Counts())
			}
			terminologytest.ExpandError(t, base, "url", test.url)
			if n, bytes := h.FetchedDefinitions.CacheUsage(); n == 0 || bytes == 0 {
				t.Errorf("holds %d, %d bytes", n, bytes)
			}
		})
	}
}

func TestFetchedByID(t *testing.T) {
	source := &terminologytest.RecordingSource{Resources: []string{fixture.ComposedValueSet("http://x/vs", "1", `{"system":"http://x/cs","concept":[{"code":"a"}]}`)}}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.VersionedSystem("http://x/cs", "1", "complete", "a")), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}}
	w := httptest.NewRecorder()
	if err := h.Expand(w, httptest.NewRequest("GET", "/ValueSet/vs-1/$expand", nil)); err != nil || !strings.Contains(w.Body.String(), `"code":"a"`) {
		t.Errorf("got %v, %s", err, w.Body)
	}
	source.WantRequested(t, "ValueSet vs-1")
}

// statusError is an error with an HTTP status for the client.
type statusError struct{ error }

func (statusError) HTTPStatus() int { return 504 }

func (statusError) IssueType() string { return "timeout" }

func (statusError) Diagnostics() string { return "the backend did not answer in time" }

func TestFetchedFailures(t *testing.T) {
	tests := []struct {
		name, url string
		there     []string
		err       error
		is        error
		status    int
		fetches   int // expected number of fetches for two requests
	}{
		{"not there", "http://x/vs", nil, nil, outcome.ErrUnknown, 404, 1},
		{"part not there", "http://x/gone", nil, nil, outcome.ErrIncomplete, 422, 1},
		{"without its concepts", "http://x/gone", []string{fixture.VersionedSystem("http://x/gone-cs", "1", "not-present", "")}, nil, outcome.ErrIncomplete, 422, 1},
		{"fails", "http://x/vs", nil, errors.New("dial tcp 10.1.2.3: refused"), nil, 502, 2},
		{"fails with a status", "http://x/vs", nil, statusError{errors.New("hidden")}, nil, 504, 2},
		{"garbage", "http://x/vs", []string{`{"resourceType":`}, nil, nil, 502, 2},
		{"broken", "http://x/vs", []string{`{"resourceType":"ValueSet","url":"http://x/vs","compose":{"include":{}}}`}, nil, nil, 502, 2},
		{"too large", "http://x/vs", []string{fixture.ComposedValueSet("http://x/vs", strings.Repeat("1", 2000), "")}, nil, nil, 422, 2},
		{"without an end", "http://x/n0", nil, nil, nil, 422, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			source := &terminologytest.RecordingSource{Resources: test.there, Err: test.err}
			h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source, MaxBytes: 2000}}
			if test.name == "without an end" {
				h.FetchedDefinitions.Source, h.FetchedDefinitions.MaxBytes = endlessSource{}, 0
			}
			for range 2 {
				_, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", test.url))
				var e *outcome.Error
				if !errors.As(err, &e) || e.Status != test.status || test.is != nil && !errors.Is(err, test.is) || test.is == nil && test.fetches > 0 && errors.Is(err, outcome.ErrUnknown) {
					t.Fatalf("got %v", err)
				}
				if strings.Contains(e.Diagnostics(), "10.1.2.3") {
					t.Errorf("an address in %q", e.Diagnostics())
				}
			}
			if len(source.Requested) != test.fetches {
				t.Errorf("requests %q", source.Requested)
			}
		})
	}
}

// endlessSource is a source of value sets, each of which imports another one.
type endlessSource struct{}

func (endlessSource) Definitions(_ context.Context, m outcome.MissingDefinition) ([]jsontext.Value, error) {
	var n int
	if _, err := fmt.Sscanf(m.Canonical, "http://x/n%d", &n); err != nil {
		return nil, err
	}
	return []jsontext.Value{jsontext.Value(fixture.ComposedValueSet(m.Canonical, "1", fmt.Sprintf(`{"valueSet":["http://x/n%d"]}`, n+1)))}, nil
}

func TestFetchedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &terminologytest.RecordingSource{Resources: []string{fixture.VersionedSystem("http://x/gone-cs", "1", "complete", "a")}, Release: make(chan struct{})}
		h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}}
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
		cancel() // the first client disconnects; the other clients still get a response
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(source.Release)
		for range 9 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		source.WantRequested(t, "CodeSystem http://x/gone-cs")
	})
}

func TestFetchedAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, young := fixture.VersionedSystem("http://x/gone-cs", "1", "complete", "a"), fixture.VersionedSystem("http://x/gone-cs", "1", "complete", "b")
		source := &terminologytest.RecordingSource{Resources: []string{old}}
		var changed []string
		f := &terminology.FetchedDefinitions{Source: source, TTL: time.Hour, MissingTTL: time.Minute, MaxStale: 10 * time.Hour}
		f.OnChange = func(url string) { changed = append(changed, url) }
		h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: f}
		const it = "CodeSystem http://x/gone-cs"
		step := func(codes string, requested ...string) {
			t.Helper()
			w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", "http://x/gone"))
			if codes == "" && err == nil || codes != "" && (err != nil || !strings.Contains(w.Body.String(), `"code":"`+codes+`"`)) {
				t.Errorf("got %v, %s, want code %q", err, w.Body, codes)
			}
			synctest.Wait()
			source.WantRequested(t, requested...)
		}
		step("a", it)
		source.Set(nil, young)
		time.Sleep(time.Hour - time.Second)
		step("a")
		time.Sleep(time.Second)
		step("a", it) // serves the old definition while fetching the new one in the background
		step("b")
		source.Set(errors.New("down"))
		time.Sleep(time.Hour)
		step("b", it)
		time.Sleep(30 * time.Second)
		step("b") // a failed fetch is not repeated immediately
		source.Set(errors.New("down"), "garbage")
		time.Sleep(30 * time.Second)
		step("b", it)
		time.Sleep(10 * time.Hour)
		step("b", it) // fetches again and finds that the definition is older than MaxStale
		step("", it)
		source.Set(nil, young)
		step("b", it)
		source.Set(nil)
		time.Sleep(time.Hour)
		step("b", it) // fetches again and finds that the definition has been deleted
		step("", it)
		step("")
		source.Set(nil, old)
		time.Sleep(time.Minute)
		step("a", it)
		if want := slices.Repeat([]string{"http://x/gone-cs"}, 3); !slices.Equal(changed, want) { // once each: changed, expired, deleted
			t.Errorf("announced changes %q", changed)
		}
		source.Set(nil, young)
		time.Sleep(time.Hour)
		f.Renew()
		synctest.Wait()
		source.WantRequested(t, it)
		step("b")
	})
}

func TestFetchedForget(t *testing.T) {
	for _, reference := range []string{"http://x/gone-cs", "http://x/gone-cs|1", "CodeSystem/cs", ""} {
		source := &terminologytest.RecordingSource{Resources: []string{fixture.VersionedSystem("http://x/gone-cs", "1", "complete", "a")}}
		h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: &terminology.FetchedDefinitions{Source: source}}
		terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", "http://x/gone"), "a")
		source.Set(nil, fixture.VersionedSystem("http://x/gone-cs", "1", "complete", "b"))
		h.FetchedDefinitions.Forget("http://x/other")
		terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", "http://x/gone"), "a")
		h.FetchedDefinitions.Forget(reference)
		terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", "http://x/gone"), "b")
		if n, _ := h.FetchedDefinitions.CacheUsage(); n != 1 {
			t.Errorf("holds %d", n)
		}
	}
}

func TestFetchedBound(t *testing.T) {
	f := &terminology.FetchedDefinitions{Source: generatedSource{}, MaxBytes: 2000}
	h := &api.Handler{Library: terminologytest.Library(t, fixture.UnresolvableValueSet), FetchedDefinitions: f}
	for round := range 2 {
		for i := range 50 {
			terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", fmt.Sprintf("http://x/%d", i)), fmt.Sprintf("c%d", i))
			if n, bytes := f.CacheUsage(); bytes > 2000 || n > 20 || n == 0 {
				t.Fatalf("round %d: holds %d, %d bytes", round, n, bytes)
			}
		}
	}
	f.MaxBytes = 0
	for i := range 50 { // exceeds the maximum number of overlays
		terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", fmt.Sprintf("http://x/%d", i)), fmt.Sprintf("c%d", i))
	}
	for i := range 50 {
		terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", fmt.Sprintf("http://x/%d", i)), fmt.Sprintf("c%d", i))
	}
	if n, _ := f.CacheUsage(); n != 50 {
		t.Errorf("holds %d", n)
	}
	h.Library = terminologytest.Library(t, fixture.ComposedValueSet("http://x/1", "2", `{"system":"http://x/cs","concept":[{"code":"other"}]}`))
	terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", "http://x/1"), "other")
	terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", "http://x/2"), "c2")
}

// generatedSource is a source that generates a value set for any URL.
type generatedSource struct{}

func (generatedSource) Definitions(_ context.Context, m outcome.MissingDefinition) ([]jsontext.Value, error) {
	code := "c" + m.Canonical[strings.LastIndexByte(m.Canonical, '/')+1:]
	return []jsontext.Value{jsontext.Value(fixture.ComposedValueSet(m.Canonical, "1", fmt.Sprintf(`{"system":"http://x/cs","concept":[{"code":%q}]}`, code)))}, nil
}

// TestForgottenWhileFetched checks that a definition is not stored if it was changed on the server while being fetched.
func TestForgottenWhileFetched(t *testing.T) {
	const of = `{"system":"http://x/cs","concept":[{"code":"%s"}]}`
	source := &terminologytest.RecordingSource{Resources: []string{fixture.ComposedValueSet("http://x/vs", "1", fmt.Sprintf(of, "old"))}}
	written := &writingSource{RecordingSource: source}
	h := &api.Handler{Library: terminologytest.Library(t, `{"resourceType":"ValueSet","url":"http://x/other","status":"active"}`), FetchedDefinitions: &terminology.FetchedDefinitions{Source: written}}
	written.write = func() {
		source.Set(nil, fixture.ComposedValueSet("http://x/vs", "1", fmt.Sprintf(of, "new")))
		h.FetchedDefinitions.Forget("http://x/vs")
	}
	terminologytest.WantCodes(t, terminologytest.ExpandWith(t, h, "url", "http://x/vs"), "new")
}

// writingSource is a source that calls write once, during the first fetch.
type writingSource struct {
	*terminologytest.RecordingSource
	write func()
}

func (s *writingSource) Definitions(ctx context.Context, m outcome.MissingDefinition) ([]jsontext.Value, error) {
	found, err := s.RecordingSource.Definitions(ctx, m)
	if write := s.write; write != nil {
		s.write = nil
		write()
	}
	return found, err
}
