package bcp47

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// TestTags checks the names of valid tags and the errors for invalid ones, including the examples in RFC 5646, appendix A.
func TestTags(t *testing.T) {
	for code, want := range map[string]string{
		"de": "German", "fr": "French", "ja": "Japanese", "i-enochian": "Enochian",
		"zh-Hant": "Chinese (Han (Traditional variant))", "zh-Hans": "Chinese (Han (Simplified variant))",
		"sr-Cyrl": "Serbian (Cyrillic)", "sr-Latn": "Serbian (Latin)",
		"zh-cmn-Hans-CN": "Mandarin Chinese (Han (Simplified variant), China)", "cmn-Hans-CN": "Mandarin Chinese (Han (Simplified variant), China)",
		"zh-yue-HK": "Yue Chinese (Hong Kong)", "yue-HK": "Yue Chinese (Hong Kong)",
		"zh-Hans-CN": "Chinese (Han (Simplified variant), China)", "sr-Latn-RS": "Serbian (Latin, Serbia)",
		"sl-rozaj": "Slovenian (Resian)", "sl-rozaj-biske": "Slovenian (Resian, The San Giorgio dialect of Resian)",
		"sl-nedis": "Slovenian (Natisone dialect)", "de-CH-1901": "German (Switzerland, Traditional German orthography)",
		"sl-IT-nedis": "Slovenian (Italy, Natisone dialect)", "hy-Latn-IT-arevela": "Armenian (Latin, Italy, Eastern Armenian)",
		"de-DE": "German (Germany)", "en-US": "English (United States)", "es-419": "Spanish (Latin America and the Caribbean)",
		"de-CH-x-phonebk": "German (Switzerland, x-phonebk)", "az-Arab-x-AZE-derbend": "Azerbaijani (Arabic, x-AZE-derbend)",
		"x-whatever": "", "qaa-Qaaa-QM-x-southern": "Private use qaa (Private use Qaaa, Private use QM, x-southern)",
		"de-Qaaa": "German (Private use Qaaa)", "sr-Latn-QM": "Serbian (Latin, Private use QM)", "sr-Qaaa-RS": "Serbian (Private use Qaaa, Serbia)",
		"en-US-u-islamcal": "English (United States, u-islamcal)", "zh-CN-a-myext-x-private": "Chinese (China, a-myext, x-private)",
		"en-a-myext-b-another": "English (a-myext, b-another)",
		"de-419-DE":            `!at column 8: the region "DE" must not follow the region "419"`,
		"a-DE":                 `!at column 1: the language "a" is not registered`,
		"ar-a-aaa-b-bbb-a-ccc": `!at column 16: the extension "a" is repeated`,

		"i-klingon": "Klingon", "en-GB-oed": "English, Oxford English Dictionary spelling", "und": "Undetermined", "iw": "Hebrew",
		"qtz": "Private use qtz", "de-Qabx": "German (Private use Qabx)", "de-QZ": "German (Private use QZ)", "de-XA": "German (Private use XA)",
		"sgn-ase": "American Sign Language", "x-a-B-1": "", "de-1606nict": "German (Late Middle French (to 1606))",
		"qzz": `!at column 1: the language "qzz" is not registered`, "de-Qaby": `!at column 4: the script "Qaby" is not registered`,
		"de-QL": `!at column 4: the region "QL" is not registered`, "de-X": `!at column 4: the private-use "x" is empty`,
		"en-us":   `!at column 4: "us" should be written "US"; the correct tag is "en-US"`,
		"EN-US":   `!at column 1: "EN" should be written "en"; the correct tag is "en-US"`,
		"zh-HANT": `!at column 4: "HANT" should be written "Hant"; the correct tag is "zh-Hant"`, "zh-hANT-CN": `!at column 4: "hANT" should be written "Hant"; the correct tag is "zh-Hant-CN"`,
		"I-Klingon": `!at column 1: "I" should be written "i"; the correct tag is "i-klingon"`, "sgn-be-fr": `!at column 5: "be" should be written "BE"; the correct tag is "sgn-BE-FR"`,
		"": `!at column 1: a subtag is missing`, "de-": `!at column 4: a subtag is missing`, "de--CH": `!at column 4: a subtag is missing`,
		"de_CH": `!at column 3: unexpected '_'`, "de-é": `!at column 4: unexpected 'é'`, " de": `!at column 1: unexpected ' '`,
		"de\x80": `!at column 3: unexpected '�'`, "de-\u202eHC": `!at column 4: unexpected '\u202e'`, "de-Ｃ": `!at column 4: unexpected 'Ｃ'`,
		"root": `!at column 1: the language "root" is not registered`, "de-12": `!at column 4: the region "12" is not registered`,
		"de-abcdefghi": `!at column 4: the subtag "abcdefghi" is longer than 8 characters`, "de-u": `!at column 4: the extension "u" is empty`,
		"x": `!at column 1: the private-use "x" is empty`, "de-u-x-a": `!at column 4: the extension "u" is empty`,
		"de-yue": `!at column 4: the ext-lang "yue" is valid only after the language "zh"`, "de-DE-Latn": `!at column 7: the script "Latn" must not follow the region "DE"`,
		"zh-cmn-yue": `!at column 8: the ext-lang "yue" must not follow the ext-lang "cmn"`, "de-1901-1901": `!at column 9: the variant "1901" is repeated`,
		"de-1901-1996-1901": `!at column 14: the variant "1901" is repeated`, "de-a-xx-A-yy": `!at column 9: the extension "a" is repeated`,
		"i-none": `!at column 1: the language "i" is not registered`, "de-" + strings.Repeat("x", 200): `!at column 129: the tag is longer than 128 characters`,
		strings.Repeat("a-", 5000): `!at column 129: the tag is longer than 128 characters`, "de-\x00": `!at column 4: unexpected '\x00'`,
	} {
		c, ok := source.System.Locate([]byte(code))
		got := "!" + system{}.InvalidReason([]byte(code))
		if ok != (got == "!") {
			t.Errorf("%q: found is %v, refused is %s", code, ok, got)
		}
		if ok {
			_, display, _ := source.System.Concept(c)
			if got = string(display); string(c.Code) != code {
				t.Errorf("%q: became %q", code, c.Code)
			}
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", code, got, want)
		}
	}
}

// TestCanonical checks the canonical forms of tags, and which tags are deprecated.
func TestCanonical(t *testing.T) {
	for code, want := range map[string]string{
		"de-CH": "de-CH", "iw": "he deprecated", "zh-yue": "yue deprecated", "zh-yue-HK": "yue-HK", "i-klingon": "tlh deprecated",
		"zh-min": "zh-min deprecated", "i-default": "i-default", "en-GB-oed": "en-GB-oxendict deprecated", "sgn-US": "ase deprecated",
		"sgn-US-x-a": "sgn-US-x-a", "zh-cmn-Hans-CN": "cmn-Hans-CN", "my-BU": "my-MM deprecated", "mo": "ro deprecated", "de-DD": "de-DE deprecated",
		"en-b-ccc-a-bbb-x-xyz": "en-a-bbb-b-ccc-x-xyz", "en-u-CO-phonebk-x-AB": "en-u-co-phonebk-x-ab", "ar-ajp": "apc deprecated",
		"ja-Latn-hepburn-heploc": "ja-Latn-hepburn-alalc97 deprecated", "ja-Latn-alalc97-heploc": "ja-Latn-alalc97 deprecated",
		"hy-arevela": "hy-arevela deprecated", "x-Y": "x-y", "sgn-BE-FR": "sfb deprecated", "en-x-b-a": "en-x-b-a", "in-TP": "id-TL deprecated",
	} {
		c, ok := source.System.Locate([]byte(code))
		got := ""
		system{}.Values(c, propertyCanonical, func(text []byte) bool { got = string(text); return true })
		_, _, flags := source.System.Concept(c)
		if status := (system{}).Status(c); status != "" {
			got += " " + status
		}
		if !ok || got != want || (flags&codesystem.FlagDeprecated != 0) != strings.HasSuffix(want, " deprecated") {
			t.Errorf("%s: got %s, flags %b, want %s", code, got, flags, want)
		}
	}
}

func TestValues(t *testing.T) {
	for code, want := range map[string]string{
		"zh-yue-Hant-HK-u-CO-phonebk-x-a-b": "language=zh ext-lang=yue script=Hant region=HK extension=u-co-phonebk private-use=x-a-b canonical=yue-Hant-HK-u-co-phonebk-x-a-b",
		"en-Latn-US":                        `language=en script=Latn region=US canonical=en-Latn-US comment=the script "Latn" is redundant for the language "en"`,
		"de-rozaj-biske": `language=de variant=rozaj variant=biske canonical=de-rozaj-biske comment=the variant "rozaj" is registered for sl ` +
			`comment=the variant "biske" is registered for sl-rozaj`,
		"sl-Latn-IT-rozaj-biske-1994": `language=sl script=Latn region=IT variant=rozaj variant=biske variant=1994 canonical=sl-Latn-IT-rozaj-biske-1994 ` +
			`comment=the script "Latn" is redundant for the language "sl"`,
		"i-default": "canonical=i-default", "de-fonipa": "language=de variant=fonipa canonical=de-fonipa", "x-a": "private-use=x-a canonical=x-a",
	} {
		c, _ := source.System.Locate([]byte(code))
		var got, visited []string
		for _, v := range source.System.AppendValues(nil, c) {
			got = append(got, v.Property.Code+"="+string(v.Text))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", code, strings.Join(got, " "), want)
		}
		for i, p := range codesystem.DetectInterfaces(source.System).Filterable.Properties() {
			system{}.Values(c, i, func(text []byte) bool { visited = append(visited, p.Code+"="+string(text)); return true })
		}
		if strings.Join(visited, " ") != want {
			t.Errorf("%s: visited %s, want %s", code, strings.Join(visited, " "), want)
		}
	}
}

func TestFilterValue(t *testing.T) {
	for _, test := range []struct {
		property    int
		value, want string
	}{
		{int(partRegion), "ch", "CH"}, {int(partLanguage), "DE", "de"}, {int(partScript), "hANT", "Hant"}, {int(partPrivateUse), "x-AZE", "x-aze"}, {int(partVariant), "", ""},
		{propertyCanonical, "zh-yue", "yue"}, {propertyCanonical, "de", "de"}, {propertyCanonical, "xx-yy", "!"}, {propertyComment, "A", "A"},
	} {
		got, err := system{}.FilterValue(test.property, test.value)
		if err != nil {
			got = "!"
		}
		if got != test.want {
			t.Errorf("%s %q: got %q, want %q", properties[test.property].Code, test.value, got, test.want)
		}
	}
}

func TestExplain(t *testing.T) {
	for code, want := range map[string]string{"de-1901-1996": "the variant of de-1901-1996 is 1901, 1996", "de": "de has no variant"} {
		c, _ := source.System.Locate([]byte(code))
		if got := (system{}).Explain(c, int(partVariant), "=", "x"); got != want {
			t.Errorf("%s: got %s", code, got)
		}
	}
}

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
			if got = append(got, text.Language+":"+string(text.Value)); text.IsDisplay != (i == 0) {
				t.Errorf("%s: display is %v of %s", code, text.IsDisplay, text.Value)
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
	if _, _, flags := source.System.Concept(de); flags != codesystem.FlagHasDesignations {
		t.Errorf("got flags %b", flags)
	}
	for language, want := range map[string]bool{"en": true, "de": true, "de-ch": true, "nl": true, "ja": false} {
		if got := codesystem.DetectInterfaces(source.System).Multilingual.HasLanguage(language); got != want {
			t.Errorf("%s: got %v", language, got)
		}
	}
}

// TestRegistry checks that all tags and subtags in the registry are valid and have names and valid canonical forms.
func TestRegistry(t *testing.T) {
	r := sharedRegistry()
	var tags []string
	for kind, subtags := range r.subtags {
		for s := range subtags {
			before := ""
			if partLanguage < part(kind) {
				before = cmp.Or(map[part]string{partExtLang: subtags[s].firstValue("Prefix")}[part(kind)], "de") + "-"
			}
			tags = append(tags, before+s)
		}
	}
	for _, records := range []map[string]record{r.grandfathered, r.redundant} {
		for s := range records {
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
			t.Errorf("%s: %s", code, system{}.InvalidReason([]byte(code)))
			continue
		}
		checkCanonical(t, c)
		if _, display, _ := source.System.Concept(c); len(display) == 0 {
			t.Errorf("%s has no display", code)
		}
	}
}

// checkCanonical checks that the canonical form of a tag is valid and that its canonical form is itself.
func checkCanonical(t *testing.T, c codesystem.Concept) {
	t.Helper()
	canonical := sharedRegistry().canonicalForm(tagOf(c))
	again, err := parse(canonical)
	if err != nil {
		t.Errorf("%s: the canonical form %s: %v", c.Code, canonical, err)
	}
	if next := sharedRegistry().canonicalForm(again); next != canonical {
		t.Errorf("%s: the canonical form is %s, of which it is %s", c.Code, canonical, next)
	}
}
