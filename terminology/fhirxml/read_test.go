package fhirxml

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// document returns a resource of the given type as XML.
func document(kind, elements string) string {
	return `<` + kind + ` xmlns="http://hl7.org/fhir">` + elements + `</` + kind + `>`
}

func TestAppendJSON(t *testing.T) {
	tests := []struct{ name, xml, want string }{
		{"primitives", document("ValueSet", `<url value="http://x/a&amp;b&#10;&quot;"/><experimental value="false"/><expansion><total value="12"/></expansion>`),
			`{"resourceType":"ValueSet","url":"http://x/a&b\n\"","experimental":false,"expansion":{"total":12}}`},
		{"decimals keep their digits", document("Parameters", `<parameter><name value="n"/><valueDecimal value="1.10"/></parameter>`),
			`{"resourceType":"Parameters","parameter":[{"name":"n","valueDecimal":1.10}]}`},
		{"strings that look like numbers", document("Parameters", `<parameter><valueString value="1"/></parameter><parameter><valueCode value="true"/></parameter>`),
			`{"resourceType":"Parameters","parameter":[{"valueString":"1"},{"valueCode":"true"}]}`},
		{"an integer with a sign", document("Parameters", `<parameter><valueInteger value="+1"/></parameter>`),
			`{"resourceType":"Parameters","parameter":[{"valueInteger":1}]}`},
		{"one of what may repeat", document("ValueSet", `<compose><include><concept><code value="a"/></concept><valueSet value="http://x"/></include></compose>`),
			`{"resourceType":"ValueSet","compose":{"include":[{"concept":[{"code":"a"}],"valueSet":["http://x"]}]}}`},
		{"nested codes", document("CodeSystem", `<concept><code value="a"/><concept><code value="b"/></concept><concept><code value="c"/></concept></concept>`),
			`{"resourceType":"CodeSystem","concept":[{"code":"a","concept":[{"code":"b"},{"code":"c"}]}]}`},
		{"parts", document("Parameters", `<parameter><name value="p"/><part><name value="q"/><valueCoding><code value="c"/></valueCoding></part></parameter>`),
			`{"resourceType":"Parameters","parameter":[{"name":"p","part":[{"name":"q","valueCoding":{"code":"c"}}]}]}`},
		{"ids and extensions", document("ValueSet", `<id value="r"/><compose id="e"><extension url="u"><valueBoolean value="true"/></extension></compose>`),
			`{"resourceType":"ValueSet","id":"r","compose":{"id":"e","extension":[{"url":"u","valueBoolean":true}]}}`},
		{"extended primitives", document("ValueSet", `<title id="i" value="T"><extension url="u"><valueCode value="c"/></extension></title><name><extension url="v"/></name>`),
			`{"resourceType":"ValueSet","title":"T","_title":{"id":"i","extension":[{"url":"u","valueCode":"c"}]},"_name":{"extension":[{"url":"v"}]}}`},
		{"extended primitives that repeat", document("Parameters", `<parameter><valueHumanName><given value="a"/><given id="x"/><given value="b"/></valueHumanName></parameter>`),
			`{"resourceType":"Parameters","parameter":[{"valueHumanName":{"given":["a",null,"b"],"_given":[null,{"id":"x"},null]}}]}`},
		{"resources within", document("Parameters", `<parameter><name value="valueSet"/><resource><ValueSet><id value="1"/></ValueSet></resource></parameter>`),
			`{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":{"resourceType":"ValueSet","id":"1"}}]}`},
		{"resources of other types", document("Bundle", `<entry><resource><Patient><id value="1"/></Patient></resource></entry><entry><resource><ValueSet/></resource></entry>`),
			`{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"Patient"}},{"resource":{"resourceType":"ValueSet"}}]}`},
		{"narrative", document("ValueSet", `<text><status value="empty"/><div xmlns="http://www.w3.org/1999/xhtml">a <b>b</b><!-- c --></div></text>`),
			`{"resourceType":"ValueSet","text":{"status":"empty","div":"<div xmlns=\"http://www.w3.org/1999/xhtml\">a <b>b</b><!-- c --></div>"}}`},
		{"prefixes, comments, instructions, space", "\ufeff<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a --><?b c?><f:ValueSet xmlns:f='http://hl7.org/fhir'>\n  <f:url value='a'/><!-- d -->\n</f:ValueSet>\n<!-- e -->",
			`{"resourceType":"ValueSet","url":"a"}`},
		{"attributes of other namespaces", `<ValueSet xmlns="http://hl7.org/fhir" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://hl7.org/fhir valueset.xsd"><url value="a"/><compose xml:id="i" xsi:type="x"/></ValueSet>`,
			`{"resourceType":"ValueSet","url":"a","compose":{}}`},
		{"what R4 does not have", document("ValueSet", `<url value="a"/><versionAlgorithmString value="semver"/><x xmlns="http://y"><url/></x><name value="n"/>`),
			`{"resourceType":"ValueSet","url":"a","name":"n"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := AppendJSON(nil, []byte(test.xml))
			if err != nil || string(got) != test.want {
				t.Errorf("got %s, %v\nwant %s", got, err, test.want)
			}
		})
	}
}

func TestAppendJSONFails(t *testing.T) {
	for name, test := range map[string]struct{ xml, want string }{
		"nothing":                          {"", "unexpected EOF"},
		"no XML":                           {`{"resourceType":"ValueSet"}`, "text"},
		"not whole":                        {`<ValueSet xmlns="http://hl7.org/fhir"><url value="a"/>`, "EOF"},
		"not well-formed":                  {document("ValueSet", `<url value="a"></name>`), "element <url>"},
		"another namespace":                {`<ValueSet xmlns="http://x"/>`, "namespace"},
		"no namespace":                     {`<ValueSet/>`, "namespace"},
		"no name of a type":                {document("A.", ""), "resource type"},
		"nor one within":                   {document("Parameters", `<parameter><resource><Ä/></resource></parameter>`), "resource type"},
		"a document type":                  {`<!DOCTYPE ValueSet [<!ENTITY a "b">]>` + document("ValueSet", `<url value="&a;"/>`), "document type"},
		"document type inside":             {document("ValueSet", `<!DOCTYPE a><url value="a"/>`), "document type"},
		"document type in skipped content": {document("ValueSet", `<y><!DOCTYPE a></y>`), "document type"},
		"an entity":                        {document("ValueSet", `<url value="&a;"/>`), "entity"},
		"another encoding":                 {`<?xml version="1.0" encoding="UTF-16"?>` + document("ValueSet", ""), "UTF-16"},
		"text":                             {document("ValueSet", `a`), "text"},
		"no boolean":                       {document("ValueSet", `<experimental value="1"/>`), "experimental"},
		"no number":                        {document("ValueSet", `<expansion><total value="1 "/></expansion>`), "total"},
		"no value":                         {document("ValueSet", `<url/>`), "url"},
		"twice":                            {document("ValueSet", `<url value="a"/><url value="b"/>`), "duplicate element url"},
		"an attribute twice":               {document("ValueSet", `<compose id="a" id="b"/>`), "duplicate attribute id"},
		"also as an element":               {document("ValueSet", `<extension url="u"><url value="v"/></extension>`), "not adjacent"},
		"apart":                            {document("ValueSet", `<contact/><compose/><contact/>`), "not adjacent"},
		"apart, once":                      {document("ValueSet", `<url value="a"/><compose/><url value="a"/>`), "not adjacent"},
		"an empty resource":                {document("Parameters", `<parameter><resource/></parameter>`), "no resource element"},
		"two resources":                    {document("Parameters", `<parameter><resource><ValueSet/><ValueSet/></resource></parameter>`), "unexpected content after"},
		"two documents":                    {document("ValueSet", "") + document("ValueSet", ""), "unexpected content after"},
		"too deep":                         {document("ValueSet", strings.Repeat(`<extension url="u">`, maxDepth+1)+strings.Repeat(`</extension>`, maxDepth+1)), "deep"},
		"too deep in primitives": {document("ValueSet", `<url value="a">`+strings.Repeat(`<extension url="u"><valueString value="a">`, maxPrimitiveDepth)+
			strings.Repeat(`</valueString></extension>`, maxPrimitiveDepth)+`</url>`), "deep"},
		"too many resources": {document("ValueSet", strings.Repeat(`<contained><ValueSet>`, maxDepth)+strings.Repeat(`</ValueSet></contained>`, maxDepth)), "deep"},
	} {
		if got, err := AppendJSON(nil, []byte(test.xml)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %.200s, %v", name, got, err)
		}
	}
}

// TestLongTokens checks that tags and texts are rejected if they would need too much memory.
func TestLongTokens(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`a="" `, maxToken/5+1)
	for name, elements := range map[string]string{
		"attributes": "<x " + long + "/>", "elements": strings.Repeat("<x>", maxDepth) + strings.Repeat("</x>", maxDepth),
	} {
		if _, err := AppendJSON(nil, []byte(document("ValueSet", elements))); !errors.Is(err, errToken) && !errors.Is(err, errDepth) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := AppendJSON(nil, []byte(document("ValueSet", `<description value="`+strings.Repeat("x", 4<<20)+`"/>`))); err != nil {
		t.Errorf("the longest string: got %v", err)
	}
}

func TestTypes(t *testing.T) {
	for _, of := range types() {
		for _, e := range of.elements {
			switch e.kind {
			case "boolean", "number", "string", "xhtml", "Resource":
				continue
			}
			if types()[e.kind] == nil {
				t.Errorf("%s.%s is of the type %q, which is not in the table", of.name, e.name, e.kind)
			}
		}
	}
}

// parsed decodes JSON to a value that can be compared and that preserves the digits of numbers.
func parsed(t testing.TB, document []byte) (value any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v in %.300s", err, document)
	}
	return value
}

// TestRoundTrip checks that all built-in definitions are unchanged after they are written as XML and read again.
func TestRoundTrip(t *testing.T) {
	file, err := os.Open("../definitions/core/r4.ndjson.zst")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unpacked, err := zstd.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer unpacked.Close()
	lines, count := bufio.NewReader(unpacked), 0
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		count++
		document, err := Append(nil, line)
		if err != nil {
			t.Fatal(err)
		}
		again, err := AppendJSON(nil, document)
		if err != nil {
			t.Fatalf("%v in %.300s", err, document)
		}
		if got, want := parsed(t, again), parsed(t, line); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %.1000s\nwant %.1000s", again, line)
		}
	}
	if count < 2000 {
		t.Errorf("only %d definitions were compared", count)
	}
}

// FuzzAppendJSON checks that XML that is accepted is converted to a JSON resource that survives a round trip.
func FuzzAppendJSON(f *testing.F) {
	f.Add([]byte(document("ValueSet", `<id value="r"/><url value="a"/><compose id="e"><include><valueSet value="x"/><valueSet id="a"/></include></compose>`)))
	f.Add([]byte(document("Parameters", `<parameter><name value="p"><extension url="u"/></name><resource><Patient/></resource></parameter><parameter><valueDecimal value="+1.0e5"/></parameter>`)))
	f.Add([]byte(document("ValueSet", `<text><div xmlns="http://www.w3.org/1999/xhtml">a<br/></div></text>`)))
	f.Fuzz(func(t *testing.T, document []byte) {
		first, err := AppendJSON(nil, document)
		if err != nil || strings.Contains(string(document), "div") {
			return
		}
		want := parsed(t, first)
		written, err := Append(nil, first)
		if err != nil {
			t.Fatalf("%v in %s", err, first)
		}
		again, err := AppendJSON(nil, written)
		if err != nil {
			t.Fatalf("%v in %s", err, written)
		}
		if got := parsed(t, again); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %s\nwant %s", again, first)
		}
	})
}
