package interaction

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func TestKindString(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for k := Capabilities; k <= Operation; k++ {
		if name := k.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("kind %d is called %q", k, name)
		} else {
			seen[name] = true
		}
	}
	for _, k := range []Kind{0, Operation + 1, 255} {
		if k.String() != "unknown" || (Interaction{Kind: k}).Permission() != 0 {
			t.Errorf("kind %d is called %q", k, k)
		}
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	types := Types()
	if len(types) != 146 || !slices.IsSorted(types) || len(slices.Compact(types)) != 146 {
		t.Errorf("%d types", len(types))
	}
	for _, name := range types {
		if !IsType(name) {
			t.Errorf("%s is none", name)
		}
	}
	for _, name := range []string{"", "*", "patient", "Patient ", "Resource", "DomainResource", "Element"} {
		if IsType(name) {
			t.Errorf("%q is one", name)
		}
	}
	for _, name := range types {
		want := slices.Contains([]string{"Device", "Encounter", "Patient", "Practitioner", "RelatedPerson"}, name)
		if isCompartment(name) != want {
			t.Errorf("%s has a compartment: %t", name, !want)
		}
	}
}

// request splits "METHOD path?query" and parses it.
func request(in string, header http.Header) (Interaction, error) {
	method, target, _ := strings.Cut(in, " ")
	path, query, _ := strings.Cut(target, "?")
	return Parse(method, path, query, header)
}

// TestSummary contains the table of R4 http.html#summary in the same order.
func TestSummary(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in, permission string
		want           Interaction
	}{
		{"GET Patient/1", "r", Interaction{Kind: Read, Type: "Patient", ID: "1"}},
		{"HEAD Patient/1", "r", Interaction{Kind: Read, Type: "Patient", ID: "1"}},
		{"GET Patient/1/_history/2", "r", Interaction{Kind: VRead, Type: "Patient", ID: "1", VersionID: "2"}},
		{"HEAD Patient/1/_history/2", "r", Interaction{Kind: VRead, Type: "Patient", ID: "1", VersionID: "2"}},
		{"PUT Patient/1", "u", Interaction{Kind: Update, Type: "Patient", ID: "1"}},
		{"PUT Patient?a=b", "us", Interaction{Kind: ConditionalUpdate, Type: "Patient", Parameters: ab}},
		{"PATCH Patient/1", "u", Interaction{Kind: Patch, Type: "Patient", ID: "1"}},
		{"PATCH Patient?a=b", "us", Interaction{Kind: ConditionalPatch, Type: "Patient", Parameters: ab}},
		{"DELETE Patient/1", "d", Interaction{Kind: Delete, Type: "Patient", ID: "1"}},
		{"DELETE Patient?a=b", "ds", Interaction{Kind: ConditionalDelete, Type: "Patient", Parameters: ab}},
		{"POST Patient", "c", Interaction{Kind: Create, Type: "Patient"}},
		{"GET Patient", "s", Interaction{Kind: TypeSearch, Type: "Patient"}},
		{"GET Patient?a=b", "s", Interaction{Kind: TypeSearch, Type: "Patient", Parameters: ab}},
		{"HEAD Patient?a=b", "s", Interaction{Kind: TypeSearch, Type: "Patient", Parameters: ab}},
		{"POST Patient/_search?a=b", "s", Interaction{Kind: TypeSearch, Type: "Patient", Parameters: ab}},
		{"GET ?a=b", "s", Interaction{Kind: SystemSearch, Parameters: ab}},
		{"GET ", "s", Interaction{Kind: SystemSearch}},
		{"POST _search?a=b", "s", Interaction{Kind: SystemSearch, Parameters: ab}},
		{"GET Patient/1/Observation?a=b", "s", Interaction{Kind: CompartmentSearch, Type: "Observation", Compartment: Reference{"Patient", "1"}, Parameters: ab}},
		{"GET Patient/1/*?a=b", "s", Interaction{Kind: CompartmentSearch, Type: "*", Compartment: Reference{"Patient", "1"}, Parameters: ab}},
		{"POST Patient/1/Observation/_search", "s", Interaction{Kind: CompartmentSearch, Type: "Observation", Compartment: Reference{"Patient", "1"}}},
		{"POST Patient/1/_search", "s", Interaction{Kind: CompartmentSearch, Type: "*", Compartment: Reference{"Patient", "1"}}},
		{"GET Patient/1/Patient", "s", Interaction{Kind: CompartmentSearch, Type: "Patient", Compartment: Reference{"Patient", "1"}}},
		{"GET Device/d.1/Observation", "s", Interaction{Kind: CompartmentSearch, Type: "Observation", Compartment: Reference{"Device", "d.1"}}},
		{"GET metadata", "", Interaction{Kind: Capabilities}},
		{"HEAD metadata", "", Interaction{Kind: Capabilities}},
		{"POST ", "", Interaction{Kind: Bundle}},
		{"GET Patient/1/_history", "r", Interaction{Kind: InstanceHistory, Type: "Patient", ID: "1"}},
		{"GET Patient/_history?a=b", "s", Interaction{Kind: TypeHistory, Type: "Patient", Parameters: ab}},
		{"GET _history", "s", Interaction{Kind: SystemHistory}},
		{"GET $export", "", Interaction{Kind: Operation, Operation: "$export"}},
		{"POST $graphql", "", Interaction{Kind: Operation, Operation: "$graphql"}},
		{"GET ValueSet/$expand?a=b", "", Interaction{Kind: Operation, Type: "ValueSet", Operation: "$expand", Parameters: ab}},
		{"POST ValueSet/$expand", "", Interaction{Kind: Operation, Type: "ValueSet", Operation: "$expand"}},
		{"GET Patient/1/$everything", "", Interaction{Kind: Operation, Type: "Patient", ID: "1", Operation: "$everything"}},
		{"POST Patient/1/$everything", "", Interaction{Kind: Operation, Type: "Patient", ID: "1", Operation: "$everything"}},
		{"HEAD Patient/1/$everything", "", Interaction{Kind: Operation, Type: "Patient", ID: "1", Operation: "$everything"}},
		{"POST $hapi.fhir.replace-references", "", Interaction{Kind: Operation, Operation: "$hapi.fhir.replace-references"}},
	} {
		t.Run(test.in, func(t *testing.T) {
			got, err := request(test.in, nil)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
			if p := got.Permission().String(); p != test.permission {
				t.Errorf("takes %q, want %q", p, test.permission)
			}
		})
	}
}

var ab = []smart.Parameter{{Name: "a", Value: "b"}}

func TestRefusedPaths(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		want     error
	}{
		{"slash only", "GET /", errUnknownPath},
		{"leading slash", "GET /Patient", errUnknownPath},
		{"trailing slash, type", "GET Patient/", errMalformedID},
		{"trailing slash, instance", "GET Patient/1/", errUnknownPath},
		{"trailing slash, history", "GET Patient/1/_history/", errMalformedID},
		{"trailing slash, version", "GET Patient/1/_history/2/", errUnknownPath},
		{"trailing slash, compartment", "GET Patient/1/Observation/", errUnknownPath},
		{"trailing slash, operation", "GET $export/", errUnknownPath},
		{"trailing slash, metadata", "GET metadata/", errUnknownPath},
		{"empty segment", "GET Patient//1", errMalformedID},
		{"dot as id", "GET Patient/.", errMalformedID},
		{"dots as id", "GET Patient/..", errMalformedID},
		{"dots as version", "GET Patient/1/_history/..", errMalformedID},
		{"dots as type", "GET ../Patient", errUnknownPath},
		{"dots after id", "GET Patient/1/../2", errUnknownPath},
		{"unknown type", "GET Patients", errUnknownType},
		{"abstract type", "GET DomainResource/1", errUnknownType},
		{"type of R5", "GET ActorDefinition/1", errUnknownType},
		{"lower-case type", "GET patient/1", errUnknownPath},
		{"upper-case type", "GET PATIENT/1", errUnknownType},
		{"type with a space", "GET Patient /1", errUnknownType},
		{"type with letters like ours", "GET Pаtient/1", errUnknownType},
		{"any type", "GET */1", errUnknownPath},
		{"metadata in capitals", "GET Metadata", errUnknownType},
		{"metadata, more", "GET metadata/1", errUnknownPath},
		{"history in capitals", "GET Patient/1/_History", errUnknownPath},
		{"unknown word", "GET foo", errUnknownPath},
		{"unknown underscore", "GET _getpages", errUnknownPath},
		{"well-known", "GET .well-known/smart-configuration", errUnknownPath},
		{"id with underscore", "GET Patient/a_b", errMalformedID},
		{"id with a slash, encoded twice", "GET Patient/a%2Fb", errMalformedID},
		{"id with NUL", "GET Patient/a\x00", errMalformedID},
		{"id with a line break", "GET Patient/a\n", errMalformedID},
		{"id in invalid UTF-8", "GET Patient/\xff", errMalformedID},
		{"id with umlaut", "GET Patient/ä", errMalformedID},
		{"id with full-width digit", "GET Patient/１", errMalformedID},
		{"id with semicolon", "GET Patient/1;a=b", errMalformedID},
		{"id with a bar", "GET Patient/1|2", errMalformedID},
		{"id with backslash", `GET Patient/1\2`, errMalformedID},
		{"id with plus", "GET Patient/1+1", errMalformedID},
		{"id too long", "GET Patient/" + strings.Repeat("a", 65), errMalformedID},
		{"version with underscore", "GET Patient/1/_history/_", errMalformedID},
		{"history twice", "GET Patient/1/_history/_history", errMalformedID},
		{"operation on a version", "POST Patient/1/_history/2/$meta-add", errUnknownPath},
		{"operation on a history", "GET Patient/1/_history/$diff", errMalformedID},
		{"operation on an operation", "GET Patient/$a/$b", errMalformedID},
		{"operation without name", "GET Patient/$", errMalformedID},
		{"system operation without name", "GET $", errUnknownPath},
		{"operation with a slash", "GET $export/1", errUnknownPath},
		{"operation with a dollar sign", "GET Patient/1/$a$b", errUnknownPath},
		{"operation with NUL", "GET $export\x00", errUnknownPath},
		{"compartment of no such type", "GET Observation/1/Patient", errUnknownPath},
		{"compartment for an unknown type", "GET Patient/1/Foo", errUnknownType},
		{"compartment for a word", "GET Patient/1/foo", errUnknownPath},
		{"compartment, deeper", "GET Patient/1/Observation/2", errUnknownPath},
		{"compartment, any, searched", "POST Patient/1/*/_search", errUnknownPath},
		{"compartment, twice searched", "POST Patient/1/_search/_search", errUnknownPath},
		{"compartment's history", "GET Patient/1/Observation/_history", errUnknownPath},
		{"compartment's operation", "GET Patient/1/Observation/$lastn", errUnknownPath},
		{"metadata of a type", "GET Patient/1/metadata", errUnknownPath},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkRejected(t, test.in, nil, test.want)
			if got := Status(test.want); got != http.StatusNotFound {
				t.Errorf("status %d", got)
			}
		})
	}
}

func checkRejected(t *testing.T, in string, header http.Header, want error) {
	t.Helper()
	got, err := request(in, header)
	if !errors.Is(err, want) || !reflect.DeepEqual(got, Interaction{}) {
		t.Errorf("got %+v, %v, want %v", got, err, want)
	}
}

// TestRefusedMethods checks every method with a path of every form against the table in the package comment.
func TestRefusedMethods(t *testing.T) {
	t.Parallel()
	for path, allowed := range map[string]string{
		"":                              "GET HEAD POST",
		"metadata":                      "GET HEAD",
		"_history":                      "GET HEAD",
		"_search":                       "POST",
		"$export":                       "GET HEAD POST",
		"Patient":                       "GET HEAD POST PUT PATCH DELETE",
		"Patient/_history":              "GET HEAD",
		"Patient/_search":               "POST",
		"Patient/$match":                "GET HEAD POST",
		"Patient/1":                     "GET HEAD PUT PATCH DELETE",
		"Patient/1/_history":            "GET HEAD",
		"Patient/1/_history/2":          "GET HEAD",
		"Patient/1/$everything":         "GET HEAD POST",
		"Patient/1/*":                   "GET HEAD",
		"Patient/1/_search":             "POST",
		"Patient/1/Observation":         "GET HEAD",
		"Patient/1/Observation/_search": "POST",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "Post", "QUERY", "", "GET "} {
			query := ""
			if path == "Patient" && method != "POST" {
				query = "a=b"
			}
			_, err := Parse(method, path, query, nil)
			if want := containsWord(allowed, method); want != (err == nil) || !want && !errors.Is(err, errUndefinedMethod) {
				t.Errorf("%s %q: %v", method, path, err)
			}
		}
	}
	if got := Status(errUndefinedMethod); got != http.StatusMethodNotAllowed {
		t.Errorf("status %d", got)
	}
}

func containsWord(words, word string) bool {
	for w := range strings.FieldsSeq(words) {
		if w == word {
			return true
		}
	}
	return false
}

func TestMethodOverride(t *testing.T) {
	t.Parallel()
	header := http.Header{"X-Http-Method-Override": {"DELETE"}, "X-Http-Method": {"DELETE"}, "X-Method-Override": {"DELETE"}}
	got, err := request("GET Patient/1?_method=DELETE", header)
	if err != nil || got.Kind != Read || got.Parameters[0].Name != "_method" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRefusedQueries(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"a=%", "a=%zz", "a;b=c", "a=b;c=d", "a=%00", "a=%ff", "a=\xff", "a=ä", "=a", "a[]=b", "a=b#c"} {
		checkRejected(t, "GET Patient?"+query, nil, errAmbiguousQuery)
		checkRejected(t, "POST Patient/1/_search?"+query, nil, errAmbiguousQuery)
	}
	if got := Status(errAmbiguousQuery); got != http.StatusBadRequest {
		t.Errorf("status %d", got)
	}
}

func TestWithForm(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"POST Patient/_search?a=b", "POST _search?a=b", "POST Patient/1/_search?a=b", "POST Patient/1/Observation/_search?a=b"} {
		search, err := request(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := search.WithForm("c=d%26&a=e")
		want := append(ab[:1:1], smart.Parameter{Name: "c", Value: "d&"}, smart.Parameter{Name: "a", Value: "e"})
		if err != nil || !reflect.DeepEqual(got.Parameters, want) || got.Kind != search.Kind {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
		if _, err := search.WithForm("a=%00"); !errors.Is(err, errAmbiguousQuery) {
			t.Errorf("%s: ambiguous form: %v", in, err)
		}
	}
	for _, in := range []string{"POST Patient", "POST $export", "POST ", "GET Patient/1", "GET _history"} {
		other, err := request(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.WithForm("a=b"); !errors.Is(err, errUnexpectedForm) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestAsync(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		prefer []string
		want   bool
	}{
		{"none", nil, false},
		{"alone", []string{"respond-async"}, true},
		{"in another case", []string{"Respond-ASYNC"}, true},
		{"in a list", []string{"return=minimal , respond-async"}, true},
		{"after a semicolon", []string{"return=minimal; respond-async"}, true},
		{"in a second line", []string{"return=minimal", "respond-async"}, true},
		{"with an empty value", []string{`respond-async=""`}, true},
		{"with a parameter", []string{"respond-async; wait=10"}, true},
		{"another", []string{"return=respond-async"}, false},
		{"as a part", []string{"no-respond-async"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := request("GET Patient", http.Header{"Prefer": test.prefer})
			if err != nil || got.IsAsync != test.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// For every kind, the canonical request of an interaction is parsed as the same interaction.
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
			if got := writeInteraction(t, i); got != test.want {
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

// writeInteraction returns the canonical request without its header and checks that it is parsed as the same interaction.
func writeInteraction(t *testing.T, i Interaction) string {
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
	writeInteraction(t, i)
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
		writeInteraction(t, i)
		if i.Kind.String() == "unknown" || strings.ContainsAny(i.Path(), "%?#;\\ \x00") || strings.Contains(i.Path(), "//") {
			t.Errorf("%q is read as %+v", in, i)
		}
		if conditional := strings.HasPrefix(i.Kind.String(), "conditional"); conditional && !hasCriteria(i.Criteria()) {
			t.Errorf("%q has no criteria: %+v", in, i)
		}
	})
}

// request returns the canonical request of an interaction, in the form of Parse's parameters: searches and operations use GET,
// and header contains only the headers that affect the interaction.
func (i Interaction) request() (method, path, query string, header http.Header) {
	header = make(http.Header)
	if i.IsAsync {
		header.Set("Prefer", "respond-async")
	}
	parameters := i.Parameters
	if i.Kind == ConditionalCreate {
		header.Set("If-None-Exist", smart.EncodeParameters(i.Criteria()))
		parameters = slices.DeleteFunc(slices.Clone(parameters), isSpecificParameter)
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
		{"criteria in the URL", "POST Patient?identifier=a", nil, errAmbiguousQuery},
		{"criteria in both", "POST Patient?identifier=a", ifNoneExist("identifier=a"), errAmbiguousQuery},
		{"no criteria", "POST Patient", ifNoneExist(""), errMissingCriteria},
		{"separators only", "POST Patient", ifNoneExist("&"), errMissingCriteria},
		{"empty criteria", "POST Patient", ifNoneExist("identifier="), errMissingCriteria},
		{"two sets", "POST Patient", ifNoneExist("identifier=a", "identifier=b"), errMissingCriteria},
		{"an empty set and another", "POST Patient", ifNoneExist("", "identifier=b"), errMissingCriteria},
		{"result parameters only", "POST Patient", ifNoneExist("_count=1"), errMissingCriteria},
		{"a format in them", "POST Patient", ifNoneExist("identifier=a&_format=json"), errMissingCriteria},
		{"a whole URL", "POST Patient", ifNoneExist("Patient?identifier=a"), errAmbiguousQuery},
		{"a question mark", "POST Patient", ifNoneExist("?identifier=a"), errAmbiguousQuery},
		{"a malformed escape", "POST Patient", ifNoneExist("identifier=%"), errAmbiguousQuery},
		{"a semicolon", "POST Patient", ifNoneExist("identifier=a;b=c"), errAmbiguousQuery},
		{"a space", "POST Patient", ifNoneExist("name=a b"), errAmbiguousQuery},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checkRejected(t, test.in, test.header, test.want)
		})
	}
}

// If-None-Exist makes only a create conditional.
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

// Parameters that match all resources of a type are not criteria.
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
				checkRejected(t, method+" Patient?"+test.query, nil, errMissingCriteria)
				continue
			}
			if got, err := request(method+" Patient?"+test.query, nil); err != nil {
				t.Errorf("%s %s: got %+v, %v", method, test.query, got, err)
			}
		}
	}
}
