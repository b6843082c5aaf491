package enforce_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
)

// TestJudgedPages checks that pages are as long as was asked for, whatever is withheld between, and are the token's own.
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
			g := operating(t)
			pages := []string{searchset("Patient/a", "Observation/b1"), searchset("Observation/b1", "Device/b1"), searchset("Observation/a1", "Observation/b1", "Observation/a2")}
			g.server.Answers["Patient/a/$everything"] = func(w http.ResponseWriter, r *http.Request) {
				answering(linkedTo(pages[0], "/Patient/a/$everything", fhirtest.Address+"?_getpages=1"))(w, r)
			}
			g.server.Answers[""] = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("_getpages") == "1" {
					answering(linkedTo(pages[1], "?_getpages=1", fhirtest.Address+"?_getpages=2"))(w, r)
					return
				}
				answering(pages[2])(w, r)
			}
			got := g.entriesOf(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("GET Patient/a/$everything"+tt.query, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
	g := operating(t)
	g.server.Answers["Patient/a/$everything"] = answering(searchset("Patient/a", "Observation/b1", "Observation/a1"))
	h := access.Holder{Scope: "patient/*.rs", Patient: "a"}
	var b bundle
	if err := json.NewDecoder(g.get(h, "Patient/a/$everything?_count=1").Body).Decode(&b); err != nil || len(b.Entry) != 1 || b.Total != nil {
		t.Fatalf("%v, %+v", err, b)
	}
	if got := g.get(access.Holder{Scope: "patient/*.rs", Patient: "b"}, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("another's page: status %d", got.StatusCode)
	}
	g.server.Put(`{"resourceType":"Patient","id":"a","active":true}`)
	g.server.Answers["Patient/a"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }
	if got := g.get(h, b.next()); got.StatusCode != http.StatusNotFound {
		t.Errorf("a page of a patient who is gone: status %d", got.StatusCode)
	}
}

// TestJudgedBesidePages checks that what belongs to no patient comes along by what names it on any page of the server's,
// and not where what names it may be on a page that is not seen.
func TestJudgedBesidePages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, query, first, second, want string }{
		{"named on another page", "", searchset("Practitioner/alice", "Observation/b1"), searchset("Observation/a1"), "Observation/a1 Practitioner/alice"},
		{"named by what is hidden on another page", "", searchset("Patient/a", "Practitioner/alice"), searchset("Observation/b1"), "Patient/a"},
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
			g := operating(t)
			g.server.Answers["Patient/a/$everything"] = answering(linkedTo(tt.first, "/Patient/a/$everything", fhirtest.Address+"?_getpages=1"))
			g.server.Answers[""] = answering(tt.second)
			g.server.Seen = func(r *http.Request) {
				if asked := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/$everything") && asked.Get("_count") != cmp.Or(strings.TrimPrefix(tt.query, "?_count="), "50") {
					t.Errorf("asked for %s", r.URL)
				}
			}
			got := g.entriesOf(access.Holder{Scope: "patient/*.rs", Patient: "a"}, requestOf("GET Patient/a/$everything"+tt.query, ""))
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestJudgedBesideRest checks that what names a resource may be hidden on a page that has not been judged yet.
func TestJudgedBesideRest(t *testing.T) {
	t.Parallel()
	g, asked := operating(t), 0
	further := func(self string) http.HandlerFunc {
		asked++
		return answering(linkedTo(searchset("Patient/a", "Practitioner/alice"), self, fhirtest.Address+"?_getpages="+strconv.Itoa(asked)))
	}
	g.server.Answers["Patient/a/$everything"] = further("/Patient/a/$everything")
	g.server.Answers[""] = func(w http.ResponseWriter, r *http.Request) { further("?"+r.URL.RawQuery)(w, r) }
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

// TestJudgedPagesEnd checks that nobody waits for ever for what may be seen, nor for more than may be held.
func TestJudgedPagesEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, page string
		limit      int64
		most       int
	}{
		{"nothing to be seen", searchset("Observation/b1"), 0, 10},
		{"much to be seen", searchset("Observation/a1"), int64(len(searchset("Observation/a1")) + 300), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, asked := operating(t), 0
			g.Limits.Answer = tt.limit
			g.server.Answers["Patient/a/$everything"] = answering(linkedTo(tt.page, "/Patient/a/$everything", fhirtest.Address+"?_getpages=0"))
			g.server.Answers[""] = func(w http.ResponseWriter, r *http.Request) {
				asked++
				answering(linkedTo(tt.page, "?"+r.URL.RawQuery, fhirtest.Address+"?_getpages="+strconv.Itoa(asked)))(w, r)
			}
			var b bundle
			if err := json.NewDecoder(g.get(access.Holder{Scope: "patient/*.rs", Patient: "a"}, "Patient/a/$everything").Body).Decode(&b); err != nil || b.next() == "" || asked > tt.most {
				t.Errorf("%v, %d pages", err, asked)
			}
		})
	}
}
