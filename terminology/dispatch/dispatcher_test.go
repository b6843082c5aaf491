package dispatch

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Each request counts by who answered it, whichever way its answer came.
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
		"known here":             {genderSet, false, map[Outcome]int{Here: 1, Stored: 2}},
		"known behind":           {foreign, false, map[Outcome]int{Next: 3}},
		"missing something":      {incomplete, false, map[Outcome]int{Next: 3}},
		"refused":                {genderSet + "&count=x", false, map[Outcome]int{Refused: 3}},
		"known here, unstored":   {genderSet, true, map[Outcome]int{Here: 3}},
		"known behind, unstored": {foreign, true, map[Outcome]int{Next: 3}},
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

// What a producer needs of a request is copied when there is something to make, and not with each hit.
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

// Where nobody is behind, what is asked for is unknown, and with all operations so is any other request.
func TestNobodyBehind(t *testing.T) {
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

// A write that was done ends the answers made of what it wrote; one that was refused does not.
func TestWriteEndsAnswers(t *testing.T) {
	t.Parallel()
	for status, ended := range map[int]bool{http.StatusOK: true, http.StatusForbidden: false, http.StatusBadGateway: true} {
		asked := 0
		s := newSite(t, settings{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/fhir+json")
			if r.Method == http.MethodPut {
				w.WriteHeader(status)
				return
			}
			asked++
			_, _ = io.WriteString(w, expansionOf(foreign, "theirs"))
		}))
		read(t, s.expand(foreign))
		s.send(httptest.NewRequest(http.MethodPut, "/fhir/R4/ValueSet/1", strings.NewReader(`{"resourceType":"ValueSet","id":"1","url":"`+foreign+`"}`)))
		read(t, s.expand(foreign))
		if (asked == 2) != ended {
			t.Errorf("%d: asked %d times", status, asked)
		}
	}
}

// TestBusy says when to come back to who did not get their turn, with an operation or with a search.
func TestBusy(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{all: true, off: true}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	busy := func(http.ResponseWriter, *http.Request) error {
		return &outcome.Error{Status: http.StatusServiceUnavailable, Code: "transient", Err: budget.ErrBusy}
	}
	g.front.operations.ofType["ValueSet/$expand"], g.front.operations.others["ValueSet"] = busy, busy
	for _, path := range []string{"/fhir/R4/ValueSet/$expand?url=x", "/fhir/R4/ValueSet?url=x"} {
		if response := g.get(path); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "5" {
			t.Errorf("%s: got %d, Retry-After %q", path, response.StatusCode, response.Header.Get("Retry-After"))
		}
	}
}
