package page

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func newSite(t *testing.T, b Branding) *Site {
	t.Helper()
	site, err := New("https://sign-in.example", b, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return site
}

func showView(t *testing.T, r *http.Request, v View) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	newSite(t, Branding{}).Show(w, r, v)
	return w.Result()
}

func readBody(t *testing.T, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestShowSetsHeaders(t *testing.T) {
	t.Parallel()
	r := showView(t, httptest.NewRequest(http.MethodGet, "/", nil), View{
		Template: "formpost", Status: http.StatusTeapot, Script: "submit", Data: FormPost{Client: "App", Address: "https://app.example/cb"},
		Policy: Policy{FormAction: "https://app.example", Images: "data:", Connect: "'self'"},
	})
	if r.StatusCode != http.StatusTeapot {
		t.Errorf("status %d", r.StatusCode)
	}
	for header, want := range map[string]string{
		"Content-Language": "en", "Vary": "Accept-Language", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
		"Content-Type": "text/html; charset=utf-8",
	} {
		if got := r.Header.Get(header); got != want {
			t.Errorf("%s %q, want %q", header, got, want)
		}
	}
	policy := r.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "; img-src data:; connect-src 'self'; form-action https://app.example; script-src 'sha256-"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %q in %q", want, policy)
		}
	}
}

func TestShowWithoutTemplate(t *testing.T) {
	t.Parallel()
	if r := showView(t, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: "message", Data: 1}); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", r.StatusCode)
	}
}

// Names of people, patients, apps and providers cannot reorder or hide other text of a page. Right-to-left names are shown.
func TestControlCharactersOfNames(t *testing.T) {
	t.Parallel()
	const name, shown = "\u202eAda\u2066\x7f \u200fדנה", "Ada דנה"
	for template, data := range map[string]any{
		"signin":        SignIn{Client: name, Username: name, Providers: []ProviderLink{{Name: name, Address: "/"}}},
		"selectaccount": SelectAccount{Client: name, Person: Person{Name: name, Detail: name}},
		"selectpatient": SelectPatient{Client: name, Patients: []Patient{{ID: "1", Name: name, Identifier: name, Address: name}}},
		"message":       Message{Title: T("%s", name), Text: T("%s", name), Detail: name},
	} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			text := readBody(t, showView(t, httptest.NewRequest(http.MethodGet, "/", nil), View{Template: template, Data: data}))
			if strings.ContainsAny(text, "\u202e\u2066\u200f\x7f") || strings.Count(text, shown) < 3 || strings.ContainsRune(text, '\ufffd') {
				t.Error(text)
			}
		})
	}
}

// Record numbers do not wrap at hyphens, and they are escaped.
func TestRecordNumbersDoNotWrap(t *testing.T) {
	t.Parallel()
	patient := Patient{Name: "Ada", Identifier: "MRN-<1>"}
	view := View{Template: "selectpatient", Data: SelectPatient{Patients: []Patient{patient}}}
	text := readBody(t, showView(t, httptest.NewRequest(http.MethodGet, "/", nil), view))
	if !strings.Contains(text, `<small>Record number</small> <span class="whole">MRN-&lt;1&gt;</span>`) {
		t.Error(text)
	}
}

// Forms may only be submitted to the configured targets and redirect to them.
func TestFormAction(t *testing.T) {
	t.Parallel()
	for want, addresses := range map[string][]string{
		"'self'":                              {"", "/oauth2/account"},
		"'self' https:":                       {"/oauth2/account", "https://login.hospital.example"},
		"'self' https: http://localhost:3000": {"http://localhost:3000/callback"},
		"'self' https: com.example.app:":      {"com.example.app:/callback"},
	} {
		if got := FormActionSources(addresses...); got != want {
			t.Errorf("%q: %q, want %q", addresses, got, want)
		}
	}
}
