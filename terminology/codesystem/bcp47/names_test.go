package bcp47

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

func TestNames(t *testing.T) {
	for code, want := range map[string]string{
		"en-US":      "en:English (United States)|en:English (Region=United States)|de:Englisch (Vereinigte Staaten)|es:inglés (Estados Unidos)|fr:anglais (États-Unis)|nl:Engels (Verenigde Staten)",
		"de":         "en:German|de:Deutsch|es:alemán|fr:allemand|nl:Duits",
		"es-ES":      "en:Spanish (Spain)|en:Castilian (Spain)|en:Spanish (Region=Spain)|de:Spanisch (Spanien)|es:español (España)|fr:espagnol (Espagne)|nl:Spaans (Spanje)",
		"zh-Hans":    "en:Chinese (Han (Simplified variant))|en:simplified Chinese|en:Chinese (Script=Han (Simplified variant))|en:Chinese (Simplified Han)|de:Chinesisch (Vereinfachtes Chinesisch)|es:chino (han simplificado)|fr:chinois (sinogrammes simplifiés)|nl:Chinees (vereenvoudigd Chinees)",
		"zh-yue-HK":  "en:Yue Chinese (Hong Kong)|en:Cantonese (Hong Kong)|en:Yue Chinese (Region=Hong Kong)|en:Cantonese (Hong Kong SAR China)|de:Kantonesisch (Sonderverwaltungsregion Hongkong)|es:cantonés (RAE de Hong Kong (China))|fr:cantonais (R.A.S. chinoise de Hong Kong)|nl:Kantonees (Hongkong SAR van China)",
		"aaq":        "en:Eastern Abnaki",
		"i-klingon":  "en:Klingon",
		"x-whatever": "",
		"de-1901-u-co-phonebk": "en:German (Traditional German orthography, u-co-phonebk)|en:German (Variant=Traditional German orthography, u-co-phonebk)|en:German (1901, u-co-phonebk)|" +
			"de:Deutsch (1901, u-co-phonebk)|es:alemán (1901, u-co-phonebk)|fr:allemand (1901, u-co-phonebk)|nl:Duits (1901, u-co-phonebk)",
	} {
		c, ok := source.System.Locate([]byte(code))
		var got []string
		for i, text := range source.System.AppendTexts([]codesystem.Text{{Language: "en", Value: []byte("German")}}, c)[1:] {
			if got = append(got, text.Language+":"+string(text.Value)); text.Display != (i == 0) {
				t.Errorf("%s: display is %v of %s", code, text.Display, text.Value)
			}
			if first := i == 0 || !strings.HasPrefix(got[i-1], text.Language+":"); first != (text.Use == codesystem.PreferredForLanguage) {
				t.Errorf("%s: %s has the use %v", code, text.Value, text.Use)
			}
		}
		if !ok || strings.Join(got, "|") != want {
			t.Errorf("%s: got %s\nwant %s", code, strings.Join(got, "|"), want)
		}
	}
	de, _ := source.System.Locate([]byte("de"))
	if _, _, flags := source.System.Concept(de); flags != codesystem.FlagDesignated {
		t.Errorf("got flags %b", flags)
	}
	for language, want := range map[string]bool{"en": true, "de": true, "de-ch": true, "nl": true, "ja": false} {
		if got := codesystem.Of(source.System).Dialects.HasLanguage(language); got != want {
			t.Errorf("%s: got %v", language, got)
		}
	}
}

// Each tag and subtag of the registry is valid, its canonical form too, and each has a name.
func TestRegistry(t *testing.T) {
	r := registered()
	var tags []string
	for kind, subtags := range r.subtags {
		for s := range subtags {
			before := ""
			if partLanguage < part(kind) {
				before = cmp.Or(map[part]string{partExtLang: subtags[s].first("Prefix")}[part(kind)], "de") + "-"
			}
			tags = append(tags, before+s)
		}
	}
	for _, whole := range []map[string]record{r.grandfathered, r.redundant} {
		for s := range whole {
			tags = append(tags, s)
		}
	}
	slices.Sort(tags)
	if got, want := fmt.Sprint(len(tags)), "9887"; got != want {
		t.Errorf("%s tags, want %s", got, want)
	}
	for _, code := range tags {
		c, ok := source.System.Locate([]byte(code))
		if !ok {
			t.Errorf("%s: %s", code, system{}.Refusal([]byte(code)))
			continue
		}
		checkCanonical(t, c)
		if _, display, _ := source.System.Concept(c); len(display) == 0 {
			t.Errorf("%s has no display", code)
		}
	}
}

// checkCanonical checks that the canonical form of a tag is a tag, and its own canonical form.
func checkCanonical(t *testing.T, c codesystem.Concept) {
	t.Helper()
	canonical := registered().canonical(tagOf(c))
	again, err := parse(canonical)
	if err != nil {
		t.Errorf("%s: the canonical form %s: %v", c.Code, canonical, err)
	}
	if next := registered().canonical(again); next != canonical {
		t.Errorf("%s: the canonical form is %s, of which it is %s", c.Code, canonical, next)
	}
}
