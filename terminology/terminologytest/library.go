// Package terminologytest supports tests and benchmarks of a terminology service. It loads libraries and generates synthetic
// code systems of any size. Generation is deterministic. Internal tests of packages that the library imports use package
// fixture instead.
package terminologytest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// core returns a library of the built-in definitions, which are loaded once.
var core = sync.OnceValues(func() (*terminology.Library, error) {
	return terminology.Load(context.Background(), definitions.Options{Core: true, Now: func() time.Time { return fixture.Time }})
})

// Core returns a library of the built-in definitions.
func Core(t testing.TB) *terminology.Library {
	t.Helper()
	l, err := core()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Library returns a library with the given resources, loaded in order from separate files.
func Library(t testing.TB, resources ...string) *terminology.Library {
	t.Helper()
	l, err := terminology.Load(context.Background(), definitions.Options{Definitions: fixture.Files(t, resources...), Now: func() time.Time { return fixture.Time }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ColourLibrary returns a library with [fixture.Colours] and related definitions.
func ColourLibrary(t testing.TB) *terminology.Library {
	t.Helper()
	return Library(t, fixture.Colours, fixture.ColoursInDutch, fixture.ColourNotes,
		fixture.ValueSet("http://x/is-red", `{"include":[{"system":"http://x/colours","filter":[{"property":"concept","op":"is-a","value":"red"}]}]}`),
		fixture.ValueSet("http://x/listed", `{"include":[{"system":"http://x/colours","concept":[{"code":"red","display":"Crimson",
			"designation":[{"language":"de","value":"Karmesin"}]},{"code":"blue"}]}]}`),
		`{"resourceType":"StructureDefinition","url":"http://x/Paint","snapshot":{"element":[{"id":"Paint.colour","path":"Paint.colour",
			"binding":{"strength":"required","valueSet":"http://x/is-red"}}]}}`,
		`{"resourceType":"ConceptMap","id":"map","url":"http://x/map","version":"1","status":"active","group":[{"source":"http://x/colours","target":"http://x/rgb",
			"element":[{"code":"red","target":[{"code":"f00","display":"#f00","equivalence":"equivalent"}]},{"code":"blue","target":[{"code":"00f","equivalence":"unmatched"}]}]}]}`)
}

// RecordingSource is an in-memory [terminology.Source] that records its calls.
type RecordingSource struct {
	mu        sync.Mutex
	Resources []string      // results of each call
	Requested []string      // definitions requested so far
	Err       error         // error of each call
	Release   chan struct{} // results are delayed until it is closed; nil: no delay
}

// Definitions implements [terminology.Source].
func (s *RecordingSource) Definitions(ctx context.Context, m outcome.MissingDefinition) (found []jsontext.Value, err error) {
	s.mu.Lock()
	s.Requested = append(s.Requested, m.String())
	s.mu.Unlock()
	if s.Release != nil {
		select {
		case <-s.Release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range s.Resources { // returns all resources, because callers must ignore those that they did not request
		found = append(found, jsontext.Value(resource))
	}
	return found, s.Err
}

// Set replaces the resources and the error to return.
func (s *RecordingSource) Set(err error, resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Resources, s.Err = resources, err
}

// WantRequested checks which definitions have been requested since the previous call.
func (s *RecordingSource) WantRequested(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.Requested, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("requested\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	s.Requested = nil
}
