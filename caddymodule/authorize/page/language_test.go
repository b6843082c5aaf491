package page

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestLanguageOf(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, locales, query, header, want string }{
		{"nothing said", "", "", "", "en"},
		{"browser's", "", "", "de-AT,de;q=0.9,en;q=0.8", "de"},
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
		r := showing(t, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: "signin", Locales: language, Data: SignIn{
			Client: "A&B", Local: true, Ways: []SignInWay{{"Clinic", "/clinic"}}, Problem: SignInProblem{Wait: 30e9},
		}})
		body := read(t, r)
		if !strings.Contains(body, want) || !strings.Contains(body, `<html lang="`+language+`">`) || r.Header.Get("Content-Language") != language {
			t.Errorf("%s: %v\n%s", language, r.Header, body)
		}
	}
}
