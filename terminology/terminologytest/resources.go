package terminologytest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// ValueSet returns a value set with the given compose.
func ValueSet(url, compose string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":%q,"status":"active","compose":%s}`, url, compose)
}

// VersionedSystem returns a CodeSystem with the given codes.
func VersionedSystem(url, version, content, codes string) string {
	var concepts []string
	for code := range strings.FieldsSeq(codes) {
		concepts = append(concepts, fmt.Sprintf(`{"code":%q,"display":"Display %s"}`, code, code))
	}
	return fmt.Sprintf(`{"resourceType":"CodeSystem","id":"cs","url":%q,"version":%q,"status":"active","content":%q,"concept":[%s]}`, url, version, content, strings.Join(concepts, ","))
}

// ComposedOf returns a ValueSet with the given includes.
func ComposedOf(url, version, include string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","id":"vs-%s","url":%q,"version":%q,"status":"active","compose":{"include":[%s]}}`, version, url, version, include)
}

// SystemWith returns a code system with one concept.
func SystemWith(url, version, code string) string {
	return fmt.Sprintf(`{"resourceType":"CodeSystem","url":%q,"version":%q,"status":"active","content":"complete","concept":[{"code":%q}]}`, url, version, code)
}

// AllOf returns a value set of all codes of a system, at the system's url with -all after it.
func AllOf(url string) string {
	return ValueSet(url+"-all", fmt.Sprintf(`{"include":[{"system":%q}]}`, url))
}

// Colours has everything that an answer may show: a hierarchy, designations, properties, statuses.
const Colours = `{"resourceType":"CodeSystem","id":"colours","url":"http://x/colours","version":"1.0.0","name":"Colours","status":"active",
"language":"en","content":"complete","valueSet":"http://x/colours/vs","caseSensitive":true,
"property":[{"code":"hue","uri":"http://x/hue","type":"integer"},{"code":"kin","type":"Coding"}],
"concept":[
 {"code":"any","display":"Any colour","definition":"All of them","property":[{"code":"notSelectable","valueBoolean":true}],"concept":[
  {"code":"red","display":"Red","designation":[{"language":"de","value":"Rot"},{"language":"de-CH","value":"Rot (CH)"},
    {"language":"fr","use":{"system":"http://x/use","code":"formal"},"value":"Rouge"}],"property":[{"code":"hue","valueInteger":0},
    {"code":"kin","valueCoding":{"system":"http://x/colours","code":"pink"}}],
   "concept":[{"code":"pink","display":"Pink","property":[{"code":"status","valueCode":"retired"}]}]},
  {"code":"blue","display":"Blue","designation":[{"language":"de","value":"Blau"}],"property":[{"code":"hue","valueInteger":240}]}]}]}`

// ColoursInDutch is a language pack, colourNotes a supplement that has to be asked for.
const (
	ColoursInDutch = `{"resourceType":"CodeSystem","url":"http://x/nl","version":"1","status":"active","language":"nl","content":"supplement",
"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-supplement-type","valueCode":"lang-pack"}],
"supplements":"http://x/colours","concept":[{"code":"red","display":"Rood"}]}`
	ColourNotes = `{"resourceType":"CodeSystem","url":"http://x/notes","version":"2","status":"active","content":"supplement","supplements":"http://x/colours|1.0.0",
"property":[{"code":"mood","type":"string"}],"concept":[{"code":"red","property":[{"code":"mood","valueString":"angry"}],
"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/itemWeight","valueDecimal":1.50}]}]}`
)

// ColourLibrary returns a library with the colours.
func ColourLibrary(t testing.TB) *terminology.Library {
	t.Helper()
	return Library(t, Colours, ColoursInDutch, ColourNotes,
		ValueSet("http://x/is-red", `{"include":[{"system":"http://x/colours","filter":[{"property":"concept","op":"is-a","value":"red"}]}]}`),
		ValueSet("http://x/listed", `{"include":[{"system":"http://x/colours","concept":[{"code":"red","display":"Crimson",
			"designation":[{"language":"de","value":"Karmesin"}]},{"code":"blue"}]}]}`),
		`{"resourceType":"StructureDefinition","url":"http://x/Paint","snapshot":{"element":[{"id":"Paint.colour","path":"Paint.colour",
			"binding":{"strength":"required","valueSet":"http://x/is-red"}}]}}`,
		`{"resourceType":"ConceptMap","id":"map","url":"http://x/map","version":"1","status":"active","group":[{"source":"http://x/colours","target":"http://x/rgb",
			"element":[{"code":"red","target":[{"code":"f00","display":"#f00","equivalence":"equivalent"}]},{"code":"blue","target":[{"code":"00f","equivalence":"unmatched"}]}]}]}`)
}

// Animals is a code system with two parents for one concept (bat), properties and an inactive concept.
const Animals = `{"resourceType":"CodeSystem","url":"http://x/animals","version":"1.0.0","status":"active","content":"complete",
"caseSensitive":false,
"property":[{"code":"legs","type":"integer"},{"code":"kind","type":"code"},{"code":"status","type":"code"}],
"concept":[
 {"code":"animal","display":"Animal","property":[{"code":"notSelectable","valueBoolean":true}],"concept":[
  {"code":"mammal","display":"Mammal","property":[{"code":"legs","valueInteger":4}],"concept":[
   {"code":"dog","display":"Dog","property":[{"code":"kind","valueCode":"tame"},{"code":"legs","valueInteger":4}]},
   {"code":"bat","display":"Bat","property":[{"code":"parent","valueCode":"flyer"},{"code":"kind","valueCode":"wild"}]}]},
  {"code":"flyer","display":"Flyer","property":[{"code":"child","valueCode":"fly"}]},
  {"code":"fly","display":"Fly","property":[{"code":"legs","valueInteger":6},{"code":"kind","valueCode":"wild"},{"code":"kind","valueCode":"pest"}]}]},
 {"code":"dodo","display":"Dodo","property":[{"code":"status","valueCode":"retired"}]},
 {"code":"chimera"}]}`

// ConceptMap returns a concept map of one group from http://x/a to http://x/b, with the given elements and further members.
func ConceptMap(name, elements, more string) string {
	return `{"resourceType":"ConceptMap","url":"http://x/` + name + `","version":"1","status":"active","group":[{"source":"http://x/a","target":"http://x/b",
		"element":[` + elements + `]` + more + `}]}`
}

// HandsOn is a group's member that hands codes without an element on to another map.
func HandsOn(to string) string { return `,"unmapped":{"mode":"other-map","url":"http://x/` + to + `"}` }

// Shelf is a Source in memory that notes what it is asked for.
type Shelf struct {
	mu        sync.Mutex
	Resources []string      // returned whatever is asked for
	Asked     []string      // definitions that were asked for
	Err       error         // returned with them
	Wait      chan struct{} // delays an answer until it is closed; nil: answers at once
}

// Definitions implements [terminology.Source].
func (s *Shelf) Definitions(ctx context.Context, m outcome.Missing) (found []jsontext.Value, err error) {
	s.mu.Lock()
	s.Asked = append(s.Asked, m.String())
	s.mu.Unlock()
	if s.Wait != nil {
		select {
		case <-s.Wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range s.Resources { // all of them: the wrong ones are to be passed over
		found = append(found, jsontext.Value(resource))
	}
	return found, s.Err
}

// Set replaces the resources, and the error to return.
func (s *Shelf) Set(err error, resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Resources, s.Err = resources, err
}

// WantAsked checks what the source was asked for since the last call.
func (s *Shelf) WantAsked(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.Asked, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("asked for\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	s.Asked = nil
}

// Gone is a definition for a library that has nothing else.
const Gone = `{"resourceType":"ValueSet","url":"http://x/gone","status":"active","compose":{"include":[{"system":"http://x/gone-cs"}]}}`

const (
	// ContainedShapes contains a code system with a url and one without, a value set that uses these, and one that uses that.
	ContainedShapes = `{"resourceType":"ValueSet","id":"shapes","contained":[
		{"resourceType":"CodeSystem","id":"cs","url":"http://x/shapes","version":"1","status":"active","content":"complete",
			"concept":[{"code":"round","display":"Round","concept":[{"code":"oval","display":"Oval"}]},{"code":"square","display":"Square"}]},
		{"resourceType":"CodeSystem","id":"nameless","status":"active","content":"complete","concept":[{"code":"flat","display":"Flat"}]},
		{"resourceType":"ValueSet","id":"round","url":"http://x/round","compose":{"include":[{"system":"#cs","filter":[{"property":"concept","op":"is-a","value":"round"}]}]}},
		{"resourceType":"ValueSet","id":"both","compose":{"include":[{"valueSet":["#round"]},{"system":"#nameless"}]}}],
		"url":"http://x/v","version":"2","status":"active","compose":{"include":[{"valueSet":["#both"]},{"system":"http://x/shapes","concept":[{"code":"square"}]}]}}`

	// BoundShape contains the value set that its element is bound to.
	BoundShape = `{"resourceType":"StructureDefinition","contained":[{"resourceType":"ValueSet","id":"in","compose":{"include":[
		{"system":"http://x/colours","concept":[{"code":"blue"}]}]}}],"url":"http://x/Shape","differential":{"element":[
		{"id":"Shape.colour","path":"Shape.colour","binding":{"strength":"required","valueSet":"#in"}}]}}`
)

// Languages is the code system of language tags.
const Languages = "urn:ietf:bcp:47"

const (
	swissLanguage = `{"include":[{"system":"urn:ietf:bcp:47","concept":[{"code":"de-CH"},{"code":"fr-CH","display":"Swiss French"},{"code":"it"},{"code":"nonsense"}]}]}`
	withRegion    = `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"region","op":"exists","value":"true"},{"property":"language","op":"=","value":"de"}]}]}`
)

// LanguageLibrary returns the built-in definitions with value sets of language tags.
func LanguageLibrary(t *testing.T) *terminology.Library {
	t.Helper()
	l, err := Core(t).With(jsontext.Value(ValueSet("http://x/swiss", swissLanguage)), jsontext.Value(ValueSet("http://x/region", withRegion)),
		jsontext.Value(ValueSet("http://x/not-swiss", `{"include":[{"valueSet":["http://hl7.org/fhir/ValueSet/languages"]}],"exclude":[{"valueSet":["http://x/swiss"]}]}`)),
		jsontext.Value(ValueSet("http://x/hebrew", `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"canonical","op":"=","value":"iw"}]}]}`)),
		jsontext.Value(ValueSet("http://x/de", `{"include":[{"system":"urn:ietf:bcp:47","filter":[{"property":"concept","op":"is-a","value":"de"}]}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// WithParameters returns a value set of all colours that has parameters for its own expansion: names and values in turn.
func WithParameters(pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, fmt.Sprintf(`{"url":"http://hl7.org/fhir/StructureDefinition/valueset-expansion-parameter",
			"extension":[{"url":"name","valueCode":%q},{"url":"value","valueString":%q}]}`, pairs[i], pairs[i+1]))
	}
	return `{"resourceType":"ValueSet","url":"http://x/own","status":"active","compose":{"extension":[` + strings.Join(list, ",") +
		`],"include":[{"system":"http://x/colours"}]}}`
}

// Demanding is a code system with versionNeeded, compositional codes and alternate codes.
const Demanding = `{"resourceType":"CodeSystem","url":"http://x/demanding","version":"1","status":"active","content":"complete",
	"versionNeeded":true,"compositional":true,"concept":[{"code":"a","display":"A","extension":[
		{"extension":[{"url":"code","valueCode":"a1"},{"url":"use","valueCoding":{"code":"u"}}],"url":"http://hl7.org/fhir/StructureDefinition/codesystem-alternate"},
		{"url":"http://hl7.org/fhir/StructureDefinition/codesystem-alternate","extension":[{"url":"code","valueCode":"a2"},{"url":"use","valueCoding":{"code":"u"}}]},
		{"url":"http://hl7.org/fhir/StructureDefinition/coding-sctdescid","valueId":"7"}]},{"code":"b"}]}`
