package negotiation

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func init() { RegisterXML(XMLCodec{}) }

// TestAcceptedWithoutXML checks that a build without XML prefers XML only if no other type is acceptable.
func TestAcceptedWithoutXML(t *testing.T) {
	codec := xmlCodec
	xmlCodec = nil
	t.Cleanup(func() { xmlCodec = codec })
	for accept, want := range map[string]Format{
		"": JSON, "application/fhir+xml": XML, "application/fhir+xml;q=0": JSON, "application/fhir+xml, */*;q=0.1": JSON,
		"application/fhir+xml, application/fhir+json;q=0.1": JSON, "text/html, application/xml": JSON,
	} {
		if got, _ := PreferredFormat([]string{accept}); got != want {
			t.Errorf("Accept: %s = %d, want %d", accept, got, want)
		}
	}
	if _, err := AppendXML(nil, []byte("{}")); err == nil {
		t.Error("no error for XML to write")
	}
	if _, err := AppendJSON(nil, []byte("<a/>")); err == nil {
		t.Error("no error for XML to read")
	}
}

func TestAccepted(t *testing.T) {
	for accept, want := range map[string]Format{
		"":                     JSON,
		"*/*":                  JSON,
		"application/fhir+xml": XML,
		"text/xml":             XML,
		"APPLICATION/XML":      XML,
		"application/fhir+xml, application/fhir+json":          XML,
		"application/fhir+json, application/fhir+xml":          JSON,
		"application/fhir+json;q=0.5, application/fhir+xml":    XML,
		"application/fhir+xml;q=0, */*;q=0.1":                  JSON,
		"application/fhir+xml;q=0":                             JSON,
		"image/png":                                            JSON,
		"image/png, application/xml;q=0.001":                   XML,
		";;;, application/fhir+xml":                            XML,
		"text/html,application/xhtml+xml,application/xml;q=.9": JSON,
	} {
		if got, _ := PreferredFormat([]string{accept}); got != want {
			t.Errorf("Accept: %s = %d, want %d", accept, got, want)
		}
	}
}

func TestLanguages(t *testing.T) {
	many := strings.Repeat("aa,", maxLanguages+1)
	for header, want := range map[string]string{
		"":                                  "",
		"*":                                 "",
		"* ; q=1.0":                         "",
		"*;q=0.5":                           "*;q=0.5",
		"en-US,en;q=0.9":                    "en-US,en;q=0.9",
		"EN-us , en;q=0.900":                "en-US,en;q=0.9",
		"en;q=0.25, de":                     "de,en;q=0.25",
		"fr,en;Q=0.050":                     "fr,en;q=0.05",
		"de-ch-1996,*;q=0.000":              "de-CH-1996,*;q=0",
		"ZH-hans-cn;q=2, zh;q=0.0001":       "zh-Hans-CN,zh",
		"en-U-CA-gregory, x-AA-bbbb":        "en-u-ca-gregory,x-aa-bbbb",
		"en_US, 12, -, de--ch, é, a b, fr;": "fr",
		strings.Repeat("a-", 40) + "a, de":  "de",
		many:                                strings.TrimSuffix(many, ",aa,"),
	} {
		if got := NormalizeLanguages([]string{header}); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	if got := NormalizeLanguages([]string{"de;q=0.1", "en"}); got != "en,de;q=0.1" {
		t.Errorf("two headers: %q", got)
	}
}

func FuzzLanguages(f *testing.F) {
	f.Add("de-CH, en;q=0.1")
	f.Add(";q")
	f.Fuzz(func(t *testing.T, header string) {
		once := NormalizeLanguages([]string{header})
		if twice := NormalizeLanguages([]string{once}); once != twice {
			t.Fatalf("%q, then %q", once, twice)
		}
	})
}

// TestPrefersXML checks RFC 9110 §12.5.1: the highest weight wins, among equal weights the first one; 0 means not acceptable.
func TestPrefersXML(t *testing.T) {
	for accept, xml := range map[string]bool{
		"": false, "*/*": false, "garbage": false, "text/csv": false, "text/html": false, "application/fhir+turtle": false,
		"application/xml": true, "text/xml": true, "Application/FHIR+XML": true, "application/fhir+xml; fhirVersion=4.0": true,
		"application/fhir+xml;q=0.5, application/fhir+json": false, "application/fhir+json;q=0.1, application/fhir+xml;q=0.9": true,
		"application/fhir+json;q=0, application/fhir+xml": true, "application/fhir+xml;q=0": false,
		"application/fhir+json, application/fhir+xml": false, "application/fhir+xml, application/fhir+json": true, "application/fhir+xml, */*": true,
		"text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8": false, "image/svg+xml, application/json": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", accept)
		if PrefersXML(r) != xml {
			t.Errorf("%s: got XML %t", accept, !xml)
		}
	}
	for query, xml := range map[string]bool{
		"_format=xml": true, "_format=application/fhir%2Bxml%3Bq=1": true, "_format=application/fhir+xml": true, "_format=&_format=XML": true,
		"_format=json": false, "_format=turtle": false, "_format=xml&%zz": false, "x=xml": false,
	} {
		if r := httptest.NewRequest("GET", "/?"+query, nil); PrefersXML(r) != xml {
			t.Errorf("%s: got XML %t", query, !xml)
		}
	}
	r := httptest.NewRequest("GET", "/?_format=", nil)
	r.Header["Accept"] = []string{"application/json;q=0.5", "application/fhir+xml"}
	if !PrefersXML(r) {
		t.Error("of two lines of Accept, the second is not read")
	}
}
