package bcp47

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

func TestTags(t *testing.T) {
	for code, want := range map[string]string{
		"de": "de German", "de-CH": "de-CH German (Switzerland)", "DE-ch": "de-CH German (Switzerland)",
		"es-419": "es-419 Spanish (Latin America)", "zh-hans-cn": "zh-Hans-CN Chinese (Simplified Han, China)",
		"zh-yue-HK": "zh-yue-HK Cantonese (Hong Kong SAR China)", "de-1996": "de-1996 German (1996)",
		"en-US-x-Twain": "en-US-x-twain English (United States, x-twain)", "en-u-co-phonebk": "en-u-co-phonebk English (u-co-phonebk)",
		"i-klingon": "i-klingon Klingon", "x-private": "x-private ", "und": "und ", "iw": "iw Hebrew", "de-QQ": "de-QQ German (QQ)",
		"": "", "root": "", "de_CH": "", "de-": "", "de--CH": "", "xx": "", "xyz": "", "de-12": "", "de-abcde": "", "de-DE-CH": "",
		"de-1901-1901": "", "de-a-xx-a-yy": "", "de-Latn-Latn": "", "de-é": "", " de": "", "de ": "",
		"de-x-" + strings.Repeat("abcdefgh-", 20) + "a": "",
	} {
		got := ""
		if c, ok := Source.System.Locate([]byte(code)); ok {
			tag, display, _ := Source.System.Concept(c)
			got = string(tag) + " " + string(display)
			if again, ok := Source.System.Locate(tag); !ok || string(again.Code) != string(tag) {
				t.Errorf("%q: %q is not found again", code, tag)
			}
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", code, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	c, _ := Source.System.Locate([]byte("zh-yue-Hant-HK-1996-u-co-phonebk-x-a-b"))
	var got []string
	for _, v := range Source.System.AppendValues(nil, c) {
		got = append(got, v.Property.Code+"="+string(v.Text))
	}
	want := "language=zh ext-lang=yue script=Hant region=HK variant=1996 extension=u-co-phonebk private-use=x-a-b"
	if strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i, p := range codesystem.Of(Source.System).Filters.Properties() {
		n := 0
		system{}.Values(c, i, func([]byte) bool { n++; return true })
		if n != 1 {
			t.Errorf("%s: %d values, want 1", p.Code, n)
		}
	}
}

func FuzzLocate(f *testing.F) {
	for _, tag := range []string{"de-CH", "i-default", "zh-min-nan", "en-GB-oed", "sgn-BE-FR", "de-a-bc-x-d", "EN-us-X-AB", "sl-rozaj-biske"} {
		f.Add(tag)
	}
	f.Fuzz(func(t *testing.T, tag string) {
		c, ok := Source.System.Locate([]byte(tag))
		if !ok {
			return
		}
		if !codesystem.EqualFold(c.Code, []byte(tag)) {
			t.Errorf("%q became %q", tag, c.Code)
		}
		if again, ok := Source.System.Locate(c.Code); !ok || string(again.Code) != string(c.Code) {
			t.Errorf("%q became %q, which became %q", tag, c.Code, again.Code)
		}
		Source.System.AppendTexts(nil, c)
		Source.System.AppendValues(nil, c)
	})
}
