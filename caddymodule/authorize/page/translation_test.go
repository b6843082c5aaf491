package page

import (
	"html/template"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/language"
)

func TestPluralsOfALanguage(t *testing.T) {
	t.Parallel()
	french := &translation{tag: language.French, texts: map[string]pluralForms{"%d apps": {"%d application", "%d applications"}}}
	for number, want := range map[int]string{0: "0 application", 1: "1 application", 2: "2 applications"} {
		if got := french.translate(Plural("%d app", "%d apps", number)); got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text *Text
		want any
	}{
		{"plain", T("Sign in"), "Sign in"},
		{"percent sign without arguments", T("100 % sure"), "100 % sure"},
		{"markup", T("to <continue> to %s & %s", strong("<a>"), "<b>"), template.HTML("to &lt;continue&gt; to <strong>&lt;a&gt;</strong> &amp; &lt;b&gt;")},
		{"one", Plural("%d app", "%d apps", 1), "1 app"},
		{"more", Plural("%d app", "%d apps", 2), "2 apps"},
		{"none", Plural("%d app", "%d apps", 0), "0 apps"},
		{"wait, rounded up", T("in %s", 29100*time.Millisecond), "in 30 seconds"},
		{"wait of minutes", T("in %s", 61*time.Second), "in 2 minutes"},
		{"wait of a minute", T("in %s", time.Minute), "in a minute"},
		{"wait of a second", T("in %s", time.Second), "in a second"},
		{"list", JoinWithAnd(T("read"), T("search"), T("create")), "read, search and create"},
		{"list of two", JoinWithAnd(T("read"), T("search")), "read and search"},
		{"list of one", JoinWithAnd(T("read")), "read"},
	}
	for _, tt := range tests {
		if got := english.translate(tt.text); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if JoinWithAnd() != nil {
		t.Error("an empty list is a text")
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"1970":       {"en": "1970", "en-GB": "1970", "de": "1970", "fr": "1970", "es": "1970", "nl": "1970"},
		"1970-08":    {"en": "Aug 1970", "en-GB": "Aug 1970", "de": "Aug. 1970", "fr": "août 1970", "es": "ago 1970", "nl": "aug 1970"},
		"1970-05-01": {"en": "May 1, 1970", "en-GB": "1 May 1970", "de": "1. Mai 1970", "fr": "1 mai 1970", "es": "1 may 1970", "nl": "1 mei 1970"},
		"2026-11-30T15:04:05.000+02:00": {
			"en": "Nov 30, 2026, 3:04 PM", "en-GB": "30 Nov 2026, 15:04", "de": "30. Nov. 2026, 15:04",
			"fr": "30 nov. 2026, 15:04", "es": "30 nov 2026, 15:04", "nl": "30 nov 2026, 15:04",
		},
		"soon": {"en": "soon", "en-GB": "soon", "de": "soon", "fr": "soon", "es": "soon", "nl": "soon"},
	} {
		for _, l := range languages {
			if got := l.date(text); got != want[l.tag.String()] {
				t.Errorf("%s in %s: %s, want %s", text, l.tag, got, want[l.tag.String()])
			}
		}
	}
}

func TestLanguageOf(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, locales, query, header, want string }{
		{"no preference", "", "", "", "en"},
		{"browser's", "", "", "de-AT,de;q=0.9,en;q=0.8", "de"},
		{"the region's", "", "", "en-AU", "en-GB"},
		{"browser's second", "", "", "ja, fr;q=0.5", "fr"},
		{"by weight", "", "", "en;q=0.1, es;q=0.9", "es"},
		{"any", "", "", "*", "en"},
		{"none of ours", "", "", "ja", "en"},
		{"the request's before the browser's", "nl", "", "de", "nl"},
		{"the request's second", "ja fr-CA", "", "de", "fr"},
		{"not the request's", "ja", "", "de", "de"},
		{"malformed", "x_! nl", "", "de", "nl"},
		{"too long", strings.Repeat("nl ", 200), "", "de", "de"},
		{"in the query of a refused request", "", "es", "de", "es"},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodGet, "/?ui_locales="+url.QueryEscape(tt.query), nil)
		r.Header.Set("Accept-Language", tt.header)
		if got := languageOf(r, tt.locales).tag.String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestShowInLanguage(t *testing.T) {
	t.Parallel()
	for language, want := range map[string]string{
		"de": "um mit <strong>A&amp;B</strong> fortzufahren", "fr": "Réessayez dans 30 secondes.", "es": "Contraseña", "nl": "of meld u aan met",
	} {
		r := showView(t, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: "signin", Locales: language, Data: SignIn{
			Client: "A&B", OffersPassword: true, Providers: []ProviderLink{{Name: "Clinic", Address: "/clinic"}}, Problem: SignInProblem{Wait: 30e9},
		}})
		body := readBody(t, r)
		if !strings.Contains(body, want) || !strings.Contains(body, `<html lang="`+language+`">`) || r.Header.Get("Content-Language") != language {
			t.Errorf("%s: %v\n%s", language, r.Header, body)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for birthDate, want := range map[string]string{
		"1970-03-01": "56 years", "1970-03-02": "55 years", "2024-03-01": "2 years", "2024-03-02": "23 months", "2026-02-01": "1 month",
		"2026-02-02": "27 days", "2026-02-28": "1 day", "2026-03-01": "0 days", "2026-03-02": "", "1970-03": "", "": "",
	} {
		if got := Age(birthDate, now); got == nil && want != "" || got != nil && got.String() != want {
			t.Errorf("born %s: %v, want %q", birthDate, got, want)
		}
	}
}

// French punctuation after or before a space stays on the line of its word.
func TestFrenchPunctuation(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../features/*/texts.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("%q: %v", files, err)
	}
	line, orphan := regexp.MustCompile(`(?m)^\t\t"fr": (.*)$`), regexp.MustCompile(` [:;?!»]|« `)
	for _, file := range append(files, "texts.json") {
		texts, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, french := range line.FindAllSubmatch(texts, -1) {
			if orphan.Match(french[1]) {
				t.Errorf("%s: use U+00A0 beside the punctuation of %s", file, french[1])
			}
		}
	}
}
