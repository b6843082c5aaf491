package sample

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, target, want string }{
		{"a type", "Patient", "Patient/1 Patient/2 Patient/3"},
		{"an id", "Patient?_id=2,3", "Patient/2 Patient/3"},
		{"a string", "Patient?name=ash", "Patient/1"},
		{"two that must hold", "Patient?name=ash&gender=male", ""},
		{"a date", "Patient?birthdate=gt1950", "Patient/2"},
		{"a reference", "Observation?patient=1", "Observation/1"},
		{"a reference of a type", "Observation?subject:Patient=1", "Observation/1"},
		{"missing value", "Patient?gender:missing=true", "Patient/3"},
		{"negated token", "Patient?gender:not=male", "Patient/1 Patient/3"},
		{"sorted", "Patient?_sort=-birthdate", "Patient/2 Patient/1 Patient/3"},
		{"by date", "Observation?_sort=date", "Observation/2 Observation/1"},
		{"when it was changed", "Patient?_lastUpdated=lt2020", ""},
		{"_include", "Observation?_id=1&_include=Observation:subject&_include=Observation:performer", "Observation/1 +Patient/1 +Practitioner/alice"},
		{"_include of a type", "Observation?_id=1&_include=Observation:performer:Organization", "Observation/1"},
		{"_revinclude", "Patient?_id=1&_revinclude=Observation:subject", "Patient/1 +Observation/1"},
		{"no entries", "Patient?_summary=count", ""},
		{"none either", "Patient?_count=0", ""},
		{"a compartment", "Patient/1/Observation", "Observation/1"},
		{"all of a compartment", "Patient/1/*", "Patient/1 Observation/1"},
		{"another compartment", "Practitioner/alice/Observation", "Observation/1"},
		{"the system", "?_type=Patient,Practitioner&_id=1,alice", "Patient/1 Practitioner/alice"},
		{"everything", "Patient/1/$everything", "Observation/1 Patient/1 +Practitioner/alice"},
		{"everything of a type", "Patient/1/$everything?_type=Observation", "Observation/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := bundleResources(t, send(newTestServer(t), http.MethodGet, tt.target, ""))
			if strings.Contains(tt.name, "compartment") || strings.HasPrefix(tt.name, "everything") {
				slices.Sort(got)
			}
			want := strings.Fields(tt.want)
			if strings.Contains(tt.name, "compartment") || strings.HasPrefix(tt.name, "everything") {
				slices.Sort(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", tt.target, got, want)
			}
		})
	}
}

// A search by POST is equivalent to a search by GET with the form's parameters appended to the query.
func TestSearchByPost(t *testing.T) {
	t.Parallel()
	w := send(newTestServer(t), http.MethodPost, "Patient/_search?gender=female", "name=ash", "Content-Type", "application/x-www-form-urlencoded")
	if got := bundleResources(t, w); !slices.Equal(got, []string{"Patient/1"}) {
		t.Errorf("%q", got)
	}
}

// Following the links returns all pages, in both directions.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	var got []string
	for target, pages := "Patient?_count=2&_sort=-_id", 0; target != ""; pages++ {
		if pages > 2 {
			t.Fatal("the links lead on and on")
		}
		w := send(s, http.MethodGet, target, "")
		got = append(got, bundleResources(t, w)...)
		var b struct {
			Total int
			Link  []linkJSON
		}
		if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || b.Total != 3 {
			t.Fatalf("%v: %s", err, w.Body)
		}
		target = ""
		for _, l := range b.Link {
			if !strings.HasPrefix(l.URL, base+"/Patient?_count=2&_sort=-_id") {
				t.Errorf("link %+v", l)
			}
			if l.Relation == "next" {
				target = strings.TrimPrefix(l.URL, base+"/")
			}
		}
	}
	if want := []string{"Patient/3", "Patient/2", "Patient/1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// With lenient handling, unsupported parameters are ignored, and the self link omits them.
func TestLenient(t *testing.T) {
	t.Parallel()
	w := send(newTestServer(t), http.MethodGet, "Patient?shoesize=9&gender=male", "", "Prefer", "handling=lenient")
	if got := bundleResources(t, w); !slices.Equal(got, []string{"Patient/2"}) || strings.Contains(w.Body.String(), "shoesize") {
		t.Errorf("%q: %s", got, w.Body)
	}
}

// FuzzSearch sends arbitrary queries. The response must be JSON and must not be a server error.
func FuzzSearch(f *testing.F) {
	store, err := NewStore(recordsOf(f)[:200]...)
	if err != nil {
		f.Fatal(err)
	}
	s := &Server{Store: store, Base: "/fhir/R4", BaseURL: base}
	for _, query := range []string{"name=a&_sort=-birthdate", "_include=Observation:subject", "_revinclude=Encounter:subject:Patient", "_count=1&_offset=2", "gender:not=male&birthdate=ap2000"} {
		f.Add("Patient", query)
	}
	f.Add("", "_type=Patient,Group&_lastUpdated=gt2020")
	f.Add("Patient/p01/*", "_summary=count")
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest(http.MethodGet, "/fhir/R4", nil)
		r.URL.Path, r.URL.RawQuery = "/fhir/R4/"+path, query
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented || !json.Valid(w.Body.Bytes()) && w.Header().Get("Content-Type") == mediaType {
			t.Errorf("%s?%s: %d %s", path, query, w.Code, w.Body)
		}
	})
}
