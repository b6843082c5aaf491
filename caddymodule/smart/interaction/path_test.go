package interaction

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// TestRequest checks that what is written is what was read, and that every kind is.
func TestRequest(t *testing.T) {
	t.Parallel()
	seen := make(map[Kind]bool)
	for _, test := range []struct{ in, want string }{
		{"HEAD metadata", "GET metadata"},
		{"GET Patient/1", "GET Patient/1"},
		{"HEAD Patient/1/_history/2?_format=json", "GET Patient/1/_history/2?_format=json"},
		{"GET Patient/1/_history", "GET Patient/1/_history"},
		{"GET Patient/_history", "GET Patient/_history"},
		{"GET _history?_count=1", "GET _history?_count=1"},
		{"POST Patient/_search?a=b+c", "GET Patient?a=b+c"},
		{"POST _search?a=%62&&c", "GET ?a=b&c="},
		{"POST Patient/1/_search", "GET Patient/1/*"},
		{"POST Patient/1/Observation/_search?a=b", "GET Patient/1/Observation?a=b"},
		{"POST Patient?_format=json", "POST Patient?_format=json"},
		{"PUT Patient/1", "PUT Patient/1"},
		{"PUT Patient?a=b", "PUT Patient?a=b"},
		{"PATCH Patient/1", "PATCH Patient/1"},
		{"PATCH Patient?a=b", "PATCH Patient?a=b"},
		{"DELETE Patient/1", "DELETE Patient/1"},
		{"DELETE Patient?a=b", "DELETE Patient?a=b"},
		{"POST ", "POST "},
		{"POST Patient/1/$everything", "GET Patient/1/$everything"},
		{"GET ValueSet/$expand?url=a", "GET ValueSet/$expand?url=a"},
		{"GET $export", "GET $export"},
	} {
		t.Run(test.in, func(t *testing.T) {
			i, err := request(test.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen[i.Kind] = true
			if got := written(t, i); got != test.want {
				t.Errorf("written %q, want %q", got, test.want)
			}
		})
	}
	for k := Capabilities; k <= Operation; k++ {
		if !seen[k] && k != ConditionalCreate {
			t.Errorf("%s is not tested", k)
		}
	}
}

// written is the canonical request without its header, which must be read as the same interaction.
func written(t *testing.T, i Interaction) string {
	t.Helper()
	method, path, query, header := i.request()
	again, err := Parse(method, path, query, header)
	if len(i.Parameters) == 0 {
		i.Parameters = again.Parameters
	}
	if err != nil || !reflect.DeepEqual(again, i) {
		t.Errorf("%s %s?%s %v is read as %+v, %v, want %+v", method, path, query, header, again, err, i)
	}
	if query != "" {
		path += "?" + query
	}
	return method + " " + path
}

func TestRequestHeader(t *testing.T) {
	t.Parallel()
	header := http.Header{"If-None-Exist": {"identifier=a%7Cb"}, "Prefer": {"respond-async, return=minimal"}}
	i, err := request("POST Patient?_pretty=true", header)
	if err != nil {
		t.Fatal(err)
	}
	_, _, query, got := i.request()
	want := http.Header{"If-None-Exist": {"identifier=a%7Cb"}, "Prefer": {"respond-async"}}
	if query != "_pretty=true" || !reflect.DeepEqual(got, want) {
		t.Errorf("written %q, %v", query, got)
	}
	written(t, i)
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"GET metadata", "GET Patient/1/_history/2", "POST Patient/1/Observation/_search?a=b", "DELETE Patient?_id=1",
		"POST Patient", "GET Patient/1/$everything", "GET Patient/../1", "GET ?_type=Patient", "PUT Patient/%31",
	} {
		f.Add(seed, "identifier=a", "respond-async")
		f.Add(seed, "", "")
	}
	f.Fuzz(func(t *testing.T, in, criteria, prefer string) {
		header := http.Header{"Prefer": {prefer}}
		if criteria != "" {
			header.Set("If-None-Exist", criteria)
		}
		i, err := request(in, header)
		if err != nil {
			if status := Status(err); status < 400 || status > 405 || !reflect.DeepEqual(i, Interaction{}) {
				t.Errorf("%q: %+v, %v", in, i, err)
			}
			return
		}
		written(t, i)
		if i.Kind.String() == "unknown" || strings.ContainsAny(i.Path(), "%?#;\\ \x00") || strings.Contains(i.Path(), "//") {
			t.Errorf("%q is read as %+v", in, i)
		}
		if conditional := strings.HasPrefix(i.Kind.String(), "conditional"); conditional && !hasCriteria(i.Criteria()) {
			t.Errorf("%q has no criteria: %+v", in, i)
		}
	})
}

// request writes the interaction as a request for Parse, in its one canonical form: searches and operations by GET,
// and of what the header said only what counts.
func (i Interaction) request() (method, path, query string, header http.Header) {
	header = make(http.Header)
	if i.Async {
		header.Set("Prefer", "respond-async")
	}
	parameters := i.Parameters
	if i.Kind == ConditionalCreate {
		header.Set("If-None-Exist", smart.EncodeParameters(i.Criteria()))
		parameters = slices.DeleteFunc(slices.Clone(parameters), isSpecial)
	}
	return i.method(), i.Path(), smart.EncodeParameters(parameters), header
}

func (i Interaction) method() string {
	switch i.Kind {
	case Create, ConditionalCreate, Bundle:
		return http.MethodPost
	case Update, ConditionalUpdate:
		return http.MethodPut
	case Patch, ConditionalPatch:
		return http.MethodPatch
	case Delete, ConditionalDelete:
		return http.MethodDelete
	default:
		return http.MethodGet
	}
}
