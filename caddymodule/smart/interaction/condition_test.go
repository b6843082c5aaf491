package interaction

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func ifNoneExist(criteria ...string) http.Header {
	return http.Header{"If-None-Exist": criteria}
}

func TestConditionalCreate(t *testing.T) {
	t.Parallel()
	got, err := request("POST Patient?_format=json", ifNoneExist("identifier=http://a|b&active=true"))
	criteria := []smart.Parameter{{Name: "identifier", Value: "http://a|b"}, {Name: "active", Value: "true"}}
	want := Interaction{
		Kind: ConditionalCreate, Type: "Patient",
		Parameters: append([]smart.Parameter{{Name: "_format", Value: "json"}}, criteria...),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if p := got.Permission().String(); p != "cs" {
		t.Errorf("takes %q", p)
	}
	if got := got.Criteria(); !reflect.DeepEqual(got, criteria) {
		t.Errorf("criteria %q", got)
	}
}

func TestCreateRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		header   http.Header
		want     error
	}{
		{"criteria in the URL", "POST Patient?identifier=a", nil, errQuery},
		{"criteria in both", "POST Patient?identifier=a", ifNoneExist("identifier=a"), errQuery},
		{"no criteria", "POST Patient", ifNoneExist(""), errCriteria},
		{"separators only", "POST Patient", ifNoneExist("&"), errCriteria},
		{"empty criteria", "POST Patient", ifNoneExist("identifier="), errCriteria},
		{"two sets", "POST Patient", ifNoneExist("identifier=a", "identifier=b"), errCriteria},
		{"an empty set and another", "POST Patient", ifNoneExist("", "identifier=b"), errCriteria},
		{"result parameters only", "POST Patient", ifNoneExist("_count=1"), errCriteria},
		{"a format in them", "POST Patient", ifNoneExist("identifier=a&_format=json"), errCriteria},
		{"a whole URL", "POST Patient", ifNoneExist("Patient?identifier=a"), errQuery},
		{"a question mark", "POST Patient", ifNoneExist("?identifier=a"), errQuery},
		{"a malformed escape", "POST Patient", ifNoneExist("identifier=%"), errQuery},
		{"a semicolon", "POST Patient", ifNoneExist("identifier=a;b=c"), errQuery},
		{"a space", "POST Patient", ifNoneExist("name=a b"), errQuery},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			refused(t, test.in, test.header, test.want)
		})
	}
}

// TestIfNoneExistElsewhere checks that the header makes nothing else conditional.
func TestIfNoneExistElsewhere(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Kind{
		"GET Patient": TypeSearch, "GET Patient/1": Read, "PUT Patient/1": Update, "POST Patient/_search": TypeSearch,
		"POST ": Bundle, "POST Patient/$match": Operation, "PUT Patient?a=b": ConditionalUpdate,
	} {
		got, err := request(in, ifNoneExist("identifier=a"))
		if err != nil || got.Kind != want || len(got.Parameters) > 1 {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
}

// TestCriteria checks that what would be about all resources of a type is no condition.
func TestCriteria(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		query string
		ok    bool
	}{
		{"", false},
		{"&", false},
		{"_format=json", false},
		{"_pretty=true&_summary=count", false},
		{"_count=1", false},
		{"_cascade=delete", false},
		{"name", false},
		{"name=", false},
		{"name=+", false},
		{"name=,", false},
		{"name=%C2%A0", false},
		{"name=%09", false},
		{"_id=&_format=json", false},
		{"name=a", true},
		{"name:exact=a", true},
		{"_format=json&name=a", true},
		{"_id=a", true},
		{"_tag=a", true},
		{"_has:Observation:patient:code=a", true},
		{"_lastUpdated=lt2020", true},
	} {
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if !test.ok {
				refused(t, method+" Patient?"+test.query, nil, errCriteria)
				continue
			}
			if got, err := request(method+" Patient?"+test.query, nil); err != nil {
				t.Errorf("%s %s: got %+v, %v", method, test.query, got, err)
			}
		}
	}
}
