package codesystem

import (
	"strings"
	"testing"
)

func TestLanguageRanges(t *testing.T) {
	texts := []Text{
		{Language: "en", Value: []byte("en"), IsDisplay: true}, {Language: "de-AT", Value: []byte("de-AT")}, {Language: "de", Value: []byte("de")},
		{Language: "pt", Value: []byte("pt")}, {Language: "fr-CA", Use: Use{Code: "900000000000003001"}, Value: []byte("fsn")},
	}
	for list, want := range map[string]string{
		"": "en", "de": "de", "DE": "de", "de-AT": "de-AT", "de-DE": "de", "pt-BR": "pt", "de-DE,de-AT": "de", "xx": "en", "xx,*;q=0": "",
		"fr,*;q=0": "", "xx;q=0.1,pt;q=0.5": "pt", "*": "en", "pt;q=0": "en", "de;q=x": "de", ",,;": "en", "pt, *;q=0": "pt",
	} {
		l, got := ParseLanguages(list), ""
		if i := l.PreferredDisplay(texts); i >= 0 {
			got = string(texts[i].Value)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", list, got, want)
		}
	}
	narrower := []Text{{Language: "en", Value: []byte("en"), IsDisplay: true}, {Language: "de", Value: []byte("de")}, {Language: "de-CH-1996", Value: []byte("de-CH-1996")}}
	if l := ParseLanguages("de-CH"); string(narrower[l.PreferredDisplay(narrower)].Value) != "de-CH-1996" {
		t.Error("a broader language goes before a narrower one")
	}
}

// TestLongLanguages checks that the end of a list that is too long is ignored.
func TestLongLanguages(t *testing.T) {
	if l := ParseLanguages(strings.Repeat("a;q=0,", 2000) + "de"); len(l.ranges) != 0 {
		t.Errorf("got %v", l.ranges)
	}
}
