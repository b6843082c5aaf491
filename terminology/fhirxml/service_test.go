package fhirxml_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

const gender = "http://hl7.org/fhir/ValueSet/administrative-gender"

func TestResponses(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Core(t)}
	path := "/ValueSet/$expand?url=" + gender
	inJSON, _ := terminologytest.Call(t, h, "GET", path, "")
	w, _ := terminologytest.Call(t, h, "GET", path+"&_format=xml", "", "If-None-Match", inJSON.Header().Get("ETag"))
	fixture.WantContains(t, w.Body.String(), `<ValueSet xmlns="http://hl7.org/fhir"><url value="`+gender+`"/>`, `<code value="male"/>`)
	if got := w.Header().Get("Content-Type"); got != "application/fhir+xml" {
		t.Errorf("got Content-Type %q", got)
	}
	for name, test := range map[string]struct{ path, accept string }{
		"Accept":               {path, "application/fhir+xml"},
		"Accept prefers it":    {path, "application/fhir+json;q=0.5, application/fhir+xml"},
		"_format beats Accept": {path + "&_format=xml", "application/fhir+json"},
		"a definition":         {"/ValueSet/administrative-gender?_format=xml", ""},
	} {
		if w, _ := terminologytest.Call(t, h, "GET", test.path, "", "Accept", test.accept); !strings.HasPrefix(w.Body.String(), "<?xml") {
			t.Errorf("%s: got %.50s", name, w.Body)
		}
	}
	statement, _ := terminologytest.Call(t, h, "GET", "/metadata", "")
	fixture.WantContains(t, statement.Body.String(), `"format":["application/fhir+json","application/fhir+xml","json","xml"]`)
}

// TestBody posts a value set in XML with a filter that depends on the extension of a primitive.
func TestBody(t *testing.T) {
	h := &api.Handler{Library: terminologytest.Library(t, fixture.Animals)}
	body := terminologytest.AsXML(t, `{"resourceType":"ValueSet","url":"http://x/vs","status":"active","compose":{"include":[{"system":"http://x/animals","filter":[{"property":"concept",
		"_op":{"extension":[{"valueCode":"child-of","url":"http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.compose.include.filter.op"}]},"op":"is-a","value":"animal"}]}]}}`)
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand?excludeNested=true&_format=json", body, "Content-Type", "application/fhir+xml")
	for _, code := range []string{"mammal", "flyer", "fly"} {
		fixture.WantContains(t, w.Body.String(), `"code":"`+code+`"`)
	}
	if strings.Contains(w.Body.String(), `"dog"`) {
		t.Errorf("got %s", w.Body)
	}
}

func TestBodyRefused(t *testing.T) {
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	for name, test := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"JSON":            {`{"resourceType":"Parameters"}`, 400, "XML"},
		"a document type": {`<!DOCTYPE a [<!ENTITY b "c">]><Parameters xmlns="http://hl7.org/fhir"/>`, 400, "document type"},
		"another type":    {`<Patient xmlns="http://hl7.org/fhir"/>`, 400, "must be a ValueSet"},
		"too large":       {terminologytest.AsXML(t, `{"resourceType":"ValueSet","name":"`+strings.Repeat("a", (16<<20))+`"}`), 413, "larger"},
	} {
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", test.body, "Content-Type", "application/fhir+xml")
		if w.Code != test.status {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
		fixture.WantContains(t, w.Body.String(), test.want)
	}
}

// TestDefinitionsInXML checks that a definitions folder may contain XML files with one resource or Bundle each.
func TestDefinitionsInXML(t *testing.T) {
	folder := t.TempDir()
	fixture.WriteFile(t, filepath.Join(folder, "cs.xml"), []byte("\ufeff"+`<?xml version="1.0" encoding="UTF-8"?>
		<CodeSystem xmlns="http://hl7.org/fhir"><text><status value="generated"/><div xmlns="http://www.w3.org/1999/xhtml"><p>x</p></div></text>
		<url value="http://x/cs"/><status value="active"/><content value="complete"/><concept><code value="a"/><display value="&#196;rztin &amp; Arzt"/>
		<concept><code value="b"/></concept></concept></CodeSystem>`))
	fixture.WriteFile(t, filepath.Join(folder, "deep", "bundle.xml"), []byte(`<Bundle xmlns="http://hl7.org/fhir"><type value="collection"/><entry><resource>
		<ValueSet><url value="http://x/vs"/><status value="active"/><compose><include><system value="http://x/cs"/></include></compose></ValueSet></resource></entry></Bundle>`))
	l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	terminologytest.WantEntries(t, terminologytest.Expand(t, l, "url", "http://x/vs"), "a Ärztin & Arzt", "b")
}

func TestBrokenDefinitions(t *testing.T) {
	for _, test := range []struct{ name, content, reason string }{
		{"XML that is no FHIR", "<project><name/></project>", "fhirxml: line 1"},
		{"XML that ends too early", `<ValueSet xmlns="http://hl7.org/fhir"><url value="http://x/a"/>`, "unexpected EOF"},
		{"XML with a document type", `<!DOCTYPE x [<!ENTITY a "a">]><ValueSet xmlns="http://hl7.org/fhir"/>`, "document type"},
		{"wrong type in XML", `<CodeSystem xmlns="http://hl7.org/fhir"><caseSensitive value="yes"/></CodeSystem>`, "fhirxml: line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "x.xml")
			fixture.WriteFile(t, name, []byte(test.content))
			_, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{name}})
			if err == nil {
				t.Fatal("no error")
			}
			fixture.WantContains(t, err.Error(), name, test.reason)
		})
	}
}
