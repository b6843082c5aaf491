package page

import "testing"

func TestDate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"1970":                          {"en": "1970", "de": "1970"},
		"1970-05":                       {"en": "1970-05", "de": "1970-05"},
		"1970-05-01":                    {"en": "1970-05-01", "de": "01.05.1970", "fr": "01/05/1970", "es": "01/05/1970", "nl": "01-05-1970"},
		"2026-05-01T09:30:00.000+02:00": {"en": "2026-05-01 09:30", "de": "01.05.2026 09:30"},
		"soon":                          {"en": "soon"},
	} {
		for _, l := range languages {
			if want, ok := want[l.tag.String()]; ok && l.date(text) != want {
				t.Errorf("%s in %s: %s, want %s", text, l.tag, l.date(text), want)
			}
		}
	}
}
