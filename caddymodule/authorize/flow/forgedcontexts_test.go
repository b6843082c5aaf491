package flow_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// forgeries is how many contexts are forged.
const forgeries = 10_000

// Whatever is sent, no token comes out for a patient whom its person may not have: by requests
// of others, altered and mixed ones, launches of others and used ones, and other clients' codes
// and refresh tokens.
func TestForgedContexts(t *testing.T) {
	t.Parallel()
	w := newForgedWorld(t)
	for range forgeries {
		if user := w.anybody(); w.random.IntN(8) == 0 {
			w.register(user, w.one(forgedClients...))
		}
		switch w.random.IntN(8) {
		case 0, 1:
			w.authorize()
		case 2, 3:
			w.choosePatient()
		case 4:
			w.chooseEncounter()
		case 5:
			w.exchange()
		case 6:
			w.refreshSomething()
		default:
			w.openPage()
		}
	}
	launched := 0
	for patient := range w.came {
		if w.launched[patient] != nil {
			launched++
		}
	}
	t.Logf("%d tokens, of %d patients, %d of them launched", sum(w.came), len(w.came), launched)
	if len(w.came) < 1+8+15 || launched < 15 || sum(w.came) < 500 {
		t.Errorf("hardly anything came out, so that nothing was tested: %v", w.came)
	}
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// authorize sends an authorization request, perhaps with a launch that was guessed, altered,
// or found.
func (w *forgedWorld) authorize() {
	user, as := w.anybody(), w.one(forgedClients...)
	q := url.Values{"client_id": {as}, "scope": {w.one(
		"launch/patient patient/*.rs offline_access", "launch/patient launch/encounter patient/*.rs offline_access",
		"launch openid patient/*.rs offline_access", "patient/*.rs", "openid offline_access user/*.rs",
	)}}
	switch handle := pick(w, w.handles); w.random.IntN(5) {
	case 0, 1:
		q["launch"] = []string{handle}
	case 2:
		q["launch"] = []string{servertest.Altered(handle + "guessed")}
	}
	if w.random.IntN(3) == 0 { // no parameter of ours
		q["patient"], q["picked"], q["context"] = []string{w.anyPatient()}, []string{"patient=" + w.anyPatient()}, []string{w.anyPatient()}
	}
	b := w.browsers[user]
	w.got(user, as, w.land(user, b, b.Authorize(servertest.Request(q))))
}

// steal is somebody's browser, with the cookies of another's that bind pages to the browser.
func (w *forgedWorld) steal() (string, *servertest.Browser) {
	user := w.anybody()
	b := servertest.NewBrowser(w.t, w.browsers[user].Server)
	maps.Copy(b.Cookies, w.browsers[user].Cookies)
	if w.random.IntN(2) == 0 {
		for name, value := range w.browsers[w.anybody()].Cookies {
			if strings.HasPrefix(name, "__Host-fhir-browser-") {
				b.Cookies[name] = value
			}
		}
	}
	return user, b
}

// request is a sealed one, mostly somebody's own or a late one, perhaps altered or put together.
func (w *forgedWorld) request(user string) string {
	recent := w.sealed[max(0, len(w.sealed)-40):]
	sealed := pick(w, recent).text
	switch w.random.IntN(10) {
	case 0:
		return servertest.Altered(sealed + "x")
	case 1:
		return sealed[:len(sealed)/2] + pick(w, recent).text
	case 2:
		head, _, _ := strings.Cut(sealed, ".")
		_, tail, _ := strings.Cut(pick(w, recent).text, ".")
		return head + "." + tail
	case 3, 4, 5, 6:
		for _, own := range slices.Backward(w.sealed) {
			if own.user == user {
				return own.text
			}
		}
	}
	return sealed
}

func (w *forgedWorld) choosePatient() {
	user, b := w.steal()
	w.post(user, b, "/oauth2/select_patient", url.Values{"patient": {w.anyPatient(user)}})
}

func (w *forgedWorld) chooseEncounter() {
	user, b := w.steal()
	w.post(user, b, w.one("/oauth2/select_encounter", "/oauth2/select_encounter", "/oauth2/consent"), url.Values{
		"encounter": {"visit-" + w.anyPatient(user)}, "patient": {w.anyPatient()}, "decision": {w.one("", "", "none", "allow", "yes")},
	})
}

// post sends the form of a page. The answer is for whoever is signed in.
func (w *forgedWorld) post(user string, b *servertest.Browser, path string, form url.Values) {
	form.Set("request", w.request(user))
	code := w.land(user, b, b.Post(path, form))
	w.got(user, "", code)
}

func (w *forgedWorld) openPage() {
	user, b := w.steal()
	q := url.Values{"request": {w.request(user)}, "patient": {w.anyPatient()}, "name": {w.anyPatient()}}
	w.got(user, "", w.land(user, b, b.Get(w.one("/oauth2/select_patient?", "/oauth2/select_encounter?", "/oauth2/consent?")+q.Encode())))
}

// got keeps a code that somebody got. Where the client is not known, the pages' request said it,
// and all are tried.
func (w *forgedWorld) got(user, as, code string) {
	if code == "" {
		return
	}
	w.codes = append(w.codes, issuedCode{code, as, user})
	if w.random.IntN(3) > 0 {
		w.redeemCode(w.codes[len(w.codes)-1], forgedClients)
	}
}

// exchange redeems somebody's code as any client.
func (w *forgedWorld) exchange() {
	w.redeemCode(pick(w, w.codes), []string{w.one(forgedClients...)})
}

func (w *forgedWorld) redeemCode(code issuedCode, clients []string) {
	for _, as := range clients {
		form := servertest.CodeForm(code.text, url.Values{"patient": {w.anyPatient()}, "launch": {pick(w, w.handles)}, "scope": {"patient/*.cruds"}})
		r := w.redeem(as, form)
		if r.AccessToken != "" && code.client != "" && code.client != as {
			w.t.Errorf("%s got tokens by a code of %s", as, code.client)
		}
		w.check(r, code.user, as, true)
	}
}

// refreshSomething uses anybody's refresh token, as any client, for any scope.
func (w *forgedWorld) refreshSomething() {
	token, as := pick(w, w.refresh[max(0, len(w.refresh)-20):]), w.one(forgedClients...)
	form := servertest.RefreshForm(token.text, url.Values{"patient": {w.anyPatient()}, "launch": {pick(w, w.handles)}})
	if w.random.IntN(3) == 0 {
		form.Set("scope", w.one("launch/patient patient/*.rs", "patient/*.cruds", "system/*.rs", "launch", "user/*.rs", "openid", "launch/patient?x="+w.anyPatient()))
	}
	if w.random.IntN(4) == 0 {
		form.Set("refresh_token", servertest.Altered(token.text+"x"))
	}
	r := w.redeem(as, form)
	if r.AccessToken != "" && as != token.client {
		w.t.Errorf("%s refreshed a token of %s", as, token.client)
	}
	w.check(r, token.user, as, false)
}

// check compares a token response with who may have whom.
func (w *forgedWorld) check(r servertest.LaunchResponse, user, as string, byCode bool) {
	if r.AccessToken == "" {
		return
	}
	var claims struct {
		Sub       string
		Client    string `json:"client_id"`
		Patient   string
		Encounter string
		Scope     string
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(r.AccessToken, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	mayBe := claims.Patient == "" || slices.Contains(mayHave[user], claims.Patient)
	if truth := w.launched[claims.Patient]; truth != nil {
		if byCode {
			truth.codes++
		}
		mayBe = truth.user == user && truth.client == as && !truth.expired && truth.codes == 1
	}
	ofPatient := claims.Patient == "" && claims.Encounter == "" && !strings.Contains(claims.Scope, "patient") ||
		claims.Patient != "" && (claims.Encounter == "" || claims.Encounter == "visit-"+claims.Patient)
	if !mayBe || !ofPatient || claims.Sub != user || claims.Client != as || r.Patient != claims.Patient || r.Encounter != claims.Encounter || r.Scope != claims.Scope {
		w.t.Errorf("%s got by %s: %+v", user, as, claims)
	}
	w.came[claims.Patient]++
	if r.Refresh != "" {
		w.refresh = append(w.refresh, issuedCode{r.Refresh, as, user})
	}
}
