package bcp13

import (
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	for code, want := range map[string]string{
		"text/plain": "text/plain", "Application/PDF": "application/pdf", "application/fhir+json": "application/fhir+json",
		"text/plain; charset=UTF-8": "text/plain; charset=UTF-8", "Text/Plain;a=b ; c=\"d; \\\"e\"": "text/plain;a=b ; c=\"d; \\\"e\"",
		"application/vnd.none.such+json": "application/vnd.none.such+json", "x-world/x-3dmf": "x-world/x-3dmf", "chemical/x-pdb": "chemical/x-pdb",
		"": "", "text": "", "text/": "", "/plain": "", "aplication/pdf": "", "text/pl ain": "", "text/plain;": "", "text/plain; charset": "",
		"text/plain\n": "", "text/plain; a=\"b": "", "text/*": "", "*/*": "", "text/" + strings.Repeat("a", 128): "", "x-/a": "",
	} {
		got := ""
		if c, ok := source.System.Locate([]byte(code)); ok {
			code, display, _ := source.System.Concept(c)
			texts := source.System.AppendTexts(nil, c)
			if got = string(code); string(display) != got || len(texts) != 1 || string(texts[0].Value) != got {
				t.Errorf("%q: display %q, texts %v", code, display, texts)
			}
			if again, ok := source.System.Locate(code); !ok || string(source.System.Code(again)) != got {
				t.Errorf("%q is not found again", code)
			}
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", code, got, want)
		}
	}
}
