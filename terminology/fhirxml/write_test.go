package fhirxml

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	tests := []struct{ name, json, want string }{
		{"primitives", `{"resourceType":"ValueSet","status":"active","url":"http://x/a&b","experimental":false}`,
			`<ValueSet xmlns="http://hl7.org/fhir"><url value="http://x/a&amp;b"/><status value="active"/><experimental value="false"/></ValueSet>`},
		{"extensions first, url as attribute", `{"resourceType":"ValueSet","expansion":{"total":1.0,"extension":[{"valueBoolean":true,"url":"u"}]}}`,
			`<ValueSet xmlns="http://hl7.org/fhir"><expansion><extension url="u"><valueBoolean value="true"/></extension><total value="1.0"/></expansion></ValueSet>`},
		{"arrays", `{"resourceType":"X","a":[1,2],"b":[{"c":"d"},{}]}`,
			`<X xmlns="http://hl7.org/fhir"><a value="1"/><a value="2"/><b><c value="d"/></b><b/></X>`},
		{"extended primitives", `{"resourceType":"X","a":"b","_a":{"id":"i","extension":[{"url":"u"}]},"_c":{"extension":[{"url":"v"}]},"d":["e",null],"_d":[null,{"id":"j"}]}`,
			`<X xmlns="http://hl7.org/fhir"><a id="i" value="b"><extension url="u"/></a><c><extension url="v"/></c><d value="e"/><d id="j"/></X>`},
		{"resources within", `{"resourceType":"Parameters","parameter":[{"name":"r","resource":{"resourceType":"X","id":"1"}}]}`,
			`<Parameters xmlns="http://hl7.org/fhir"><parameter><name value="r"/><resource><X><id value="1"/></X></resource></parameter></Parameters>`},
		{"narrative", `{"resourceType":"X","text":{"div":"<div xmlns=\"http://www.w3.org/1999/xhtml\">a</div>"}}`,
			`<X xmlns="http://hl7.org/fhir"><text><div xmlns="http://www.w3.org/1999/xhtml">a</div></text></X>`},
		{"control characters", `{"resourceType":"X","a":"\u0001\n\""}`, "<X xmlns=\"http://hl7.org/fhir\"><a value=\"\ufffd&#xA;&#34;\"/></X>"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Append(nil, []byte(test.json))
			if err != nil || string(got) != xml.Header+test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestAppendFails(t *testing.T) {
	for _, json := range []string{"", "{", "[]", `{"a":1}`, `{"resourceType":1}`, `{"resourceType":"X","a":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + "}"} {
		if got, err := Append(nil, []byte(json)); err == nil {
			t.Errorf("%.30s: got %s", json, got)
		}
	}
}

// FuzzAppend checks that the XML is well-formed.
func FuzzAppend(f *testing.F) {
	f.Add([]byte(`{"resourceType":"ValueSet","a":[{"b":"c"},null],"_a":[{"extension":[{"url":"<"}]}],"d":{"resourceType":"X"}}`))
	f.Fuzz(func(t *testing.T, json []byte) {
		got, err := Append(nil, json)
		if err != nil || strings.Contains(string(json), "div") {
			return
		}
		for decoder := xml.NewDecoder(strings.NewReader(string(got))); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatalf("%v in %s from %s", err, got, json)
			}
		}
	})
}
