package flow_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// forgeries is the number of forged requests.
const forgeries = 10_000

// No forged request yields a token for a patient that the person may not access. The forgeries are requests that are altered,
// spliced or belong to another user, launches that are used or belong to another user, and codes and refresh tokens of other
// clients.
func TestForgedContexts(t *testing.T) {
	t.Parallel()
	w := newForgeryFixture(t)
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
	for patient := range w.tokenCounts {
		if w.launched[patient] != nil {
			launched++
		}
	}
	t.Logf("%d tokens, of %d patients, %d of them launched", sum(w.tokenCounts), len(w.tokenCounts), launched)
	if len(w.tokenCounts) < 1+8+15 || launched < 15 || sum(w.tokenCounts) < 500 {
		t.Errorf("too few tokens were issued for a meaningful test: %v", w.tokenCounts)
	}
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// authorize sends an authorization request, possibly with a guessed, altered or stolen launch.
func (w *forgeryFixture) authorize() {
	user, as := w.anybody(), w.one(forgedClients...)
	q := url.Values{"client_id": {as}, "scope": {w.one(
		"launch/patient patient/*.rs offline_access", "launch/patient launch/encounter patient/*.rs offline_access",
		"launch openid patient/*.rs offline_access", "patient/*.rs", "openid offline_access user/*.rs",
	)}}
	switch handle := pickRandom(w, w.handles); w.random.IntN(5) {
	case 0, 1:
		q["launch"] = []string{handle}
	case 2:
		q["launch"] = []string{authorizetest.AlterLetter(handle + "guessed")}
	}
	if w.random.IntN(3) == 0 { // unsupported parameters, which must not select a patient
		q["patient"], q["picked"], q["context"] = []string{w.anyPatient()}, []string{"patient=" + w.anyPatient()}, []string{w.anyPatient()}
	}
	b := w.browsers[user]
	w.got(user, as, w.land(user, b, b.Authorize(authorizetest.Request(q))))
}

// steal returns a random user and a copy of the user's browser, sometimes with another browser's binding cookies.
func (w *forgeryFixture) steal() (string, *authorizetest.Browser) {
	user := w.anybody()
	b := authorizetest.NewBrowser(w.t, w.browsers[user].Server)
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

// request returns a sealed request, usually the user's own or a recent one, possibly altered or spliced.
func (w *forgeryFixture) request(user string) string {
	recent := w.sealed[max(0, len(w.sealed)-40):]
	sealed := pickRandom(w, recent).text
	switch w.random.IntN(10) {
	case 0:
		return authorizetest.AlterLetter(sealed + "x")
	case 1:
		return sealed[:len(sealed)/2] + pickRandom(w, recent).text
	case 2:
		head, _, _ := strings.Cut(sealed, ".")
		_, tail, _ := strings.Cut(pickRandom(w, recent).text, ".")
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

func (w *forgeryFixture) choosePatient() {
	user, b := w.steal()
	w.post(user, b, "/oauth2/select_patient", url.Values{"patient": {w.anyPatient(user)}, "decision": {"confirm"}})
}

func (w *forgeryFixture) chooseEncounter() {
	user, b := w.steal()
	w.post(user, b, w.one("/oauth2/select_encounter", "/oauth2/select_encounter", "/oauth2/consent"), url.Values{
		"encounter": {"visit-" + w.anyPatient(user)}, "patient": {w.anyPatient()}, "decision": {w.one("", "", "none", "allow", "yes")},
	})
}

// post submits a page's form. A resulting code is recorded as issued to user.
func (w *forgeryFixture) post(user string, b *authorizetest.Browser, path string, form url.Values) {
	form.Set("request", w.request(user))
	code := w.land(user, b, b.Post(path, form))
	w.got(user, "", code)
}

func (w *forgeryFixture) openPage() {
	user, b := w.steal()
	q := url.Values{"request": {w.request(user)}, "patient": {w.anyPatient()}, "name": {w.anyPatient()}}
	w.got(user, "", w.land(user, b, b.Get(w.one("/oauth2/select_patient?", "/oauth2/select_encounter?", "/oauth2/consent?")+q.Encode())))
}

// got records a code and usually tries to redeem it as each client. as is the code's client, or "" if only the sealed request
// identifies it.
func (w *forgeryFixture) got(user, as, code string) {
	if code == "" {
		return
	}
	w.codes = append(w.codes, issuedCode{code, as, user})
	if w.random.IntN(3) > 0 {
		w.redeemCode(w.codes[len(w.codes)-1], forgedClients)
	}
}

// exchange tries to redeem a random code as a random client.
func (w *forgeryFixture) exchange() {
	w.redeemCode(pickRandom(w, w.codes), []string{w.one(forgedClients...)})
}

func (w *forgeryFixture) redeemCode(code issuedCode, clients []string) {
	for _, as := range clients {
		form := authorizetest.CodeForm(code.text, url.Values{"patient": {w.anyPatient()}, "launch": {pickRandom(w, w.handles)}, "scope": {"patient/*.cruds"}})
		r := w.redeem(as, form)
		if r.AccessToken != "" && code.client != "" && code.client != as {
			w.t.Errorf("%s got tokens by a code of %s", as, code.client)
		}
		w.check(r, code.user, as, true)
	}
}

// refreshSomething sends a refresh request with a random recent refresh token, client and scope.
func (w *forgeryFixture) refreshSomething() {
	token, as := pickRandom(w, w.refresh[max(0, len(w.refresh)-20):]), w.one(forgedClients...)
	form := authorizetest.RefreshForm(token.text, url.Values{"patient": {w.anyPatient()}, "launch": {pickRandom(w, w.handles)}})
	if w.random.IntN(3) == 0 {
		form.Set("scope", w.one("launch/patient patient/*.rs", "patient/*.cruds", "system/*.rs", "launch", "user/*.rs", "openid", "launch/patient?x="+w.anyPatient()))
	}
	if w.random.IntN(4) == 0 {
		form.Set("refresh_token", authorizetest.AlterLetter(token.text+"x"))
	}
	r := w.redeem(as, form)
	if r.AccessToken != "" && as != token.client {
		w.t.Errorf("%s refreshed a token of %s", as, token.client)
	}
	w.check(r, token.user, as, false)
}

// check verifies that the user may access the patient of a token response.
func (w *forgeryFixture) check(r authorizetest.LaunchResponse, user, as string, byCode bool) {
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
	w.tokenCounts[claims.Patient]++
	if r.RefreshToken != "" {
		w.refresh = append(w.refresh, issuedCode{r.RefreshToken, as, user})
	}
}

// mayHave lists the patients that each user may choose without an EHR launch.
var mayHave = map[string][]string{
	"alice": {"a1", "a2", "a3", "a4"},
	"dora":  {"d1", "d2", "d3", "d4"},
	"pat":   {"a1"},
	"quinn": {"d1"},
	"mum":   {"a2"},
	"carer": {"a3", "d3"},
	"guest": {"a4", "d4"},
	"none":  nil,
}

var fhirUsers = map[string]string{
	"alice": "Practitioner/alice", "dora": "Practitioner/dora", "pat": "Patient/a1", "quinn": "Patient/d1",
	"mum": "RelatedPerson/mum", "carer": "Person/carer",
}

// clinicianServer is a FHIR server that shows clinicians only their own patients, and filters responses to other people like
// the guard. Every patient has one encounter.
type clinicianServer struct{}

func (clinicianServer) Get(_ context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	resourceType, id, read := strings.Cut(path, "/")
	sees := func(patient string) bool {
		if by.Patient != "" {
			return patient == by.Patient
		}
		return by.FHIRUser == authorizetest.FHIRBase+"/Practitioner/"+by.Subject && slices.Contains(mayHave[by.Subject], patient)
	}
	patient := func(id string) string { return `{"resourceType":"Patient","id":"` + id + `"}` }
	visit := func(id string) string {
		return `{"resourceType":"Encounter","id":"visit-` + id + `","subject":{"reference":"Patient/` + id + `"}}`
	}
	switch {
	case path == "RelatedPerson/mum" && by.Subject == "mum":
		return []byte(`{"patient":{"reference":"Patient/a2"}}`), nil
	case path == "Person/carer" && by.Subject == "carer":
		return []byte(`{"link":[{"target":{"reference":"Patient/a3"}},{"target":{"reference":"Patient/d3"}}]}`), nil
	case resourceType == "Patient" && read && sees(id):
		return []byte(patient(id)), nil
	case resourceType == "Encounter" && read && sees(strings.TrimPrefix(id, "visit-")):
		return []byte(visit(strings.TrimPrefix(id, "visit-"))), nil
	case path == "Encounter" && sees(query.Get("patient")):
		return []byte(`{"entry":[{"resource":` + visit(query.Get("patient")) + `}]}`), nil
	case path == "Patient" && by.FHIRUser != "":
		return []byte(`{"entry":[{"resource":` + patient(mayHave[by.Subject][0]) + `}]}`), nil
	}
	return nil, launch.ErrNoRecord
}

// registeredLaunch is a registered launch. Each launch has a separate patient that is otherwise inaccessible to everyone.
type registeredLaunch struct {
	user, client string
	expired      bool
	codes        int // number of codes redeemed for this launch
}

// issuedCode is a code, refresh token or sealed request with its client and user.
type issuedCode struct{ text, client, user string }

// forgeryFixture contains the server, a browser for each user, and the launches, sealed requests, codes and refresh tokens to
// use in forged requests.
type forgeryFixture struct {
	t        *testing.T
	random   *rand.Rand
	store    store.Store
	browsers map[string]*authorizetest.Browser
	launched map[string]*registeredLaunch // keys are patient ids

	handles                []string
	sealed, codes, refresh []issuedCode
	tokenCounts            map[string]int // number of tokens issued by patient id
}

var forgedClients = []string{"app", "other", "clinic"}

func newForgeryFixture(t *testing.T) *forgeryFixture {
	t.Helper()
	w := &forgeryFixture{
		t: t, random: rand.New(rand.NewPCG(12, 34)), browsers: map[string]*authorizetest.Browser{},
		launched: map[string]*registeredLaunch{}, tokenCounts: map[string]int{},
	}
	server := authorizetest.New(t, func(c *authorize.Config) {
		c.Records, c.Users, c.Clients = clinicianServer{}, nil, nil
		for name := range mayHave {
			c.Users = append(c.Users, people.User{ID: name, PasswordHash: "right", FHIRUser: fhirUsers[name]})
			if name == "guest" {
				c.Users[len(c.Users)-1].Patients = mayHave[name]
			}
		}
		for _, id := range forgedClients {
			c.Clients = append(c.Clients, client.Client{ID: id, RedirectURIs: []string{authorizetest.Callback}, Scopes: authorizetest.LaunchScopes, PKCE: client.PKCEOptional})
		}
		authorizetest.UseES256(c)
		c.Clients[2].Secret = "clinic-secret-0123456789"
		w.store = c.Store
	})
	for name := range mayHave {
		w.browsers[name] = authorizetest.NewBrowser(t, server)
		w.browsers[name].SignIn(authorizetest.Request(nil), name, "right")
	}
	return w
}

func pickRandom[T any](w *forgeryFixture, list []T) (one T) {
	if len(list) == 0 {
		return one
	}
	return list[w.random.IntN(len(list))]
}

func (w *forgeryFixture) one(of ...string) string { return pickRandom(w, of) }

// anybody returns a random user from a list with a stable order.
func (w *forgeryFixture) anybody() string {
	return w.one("alice", "dora", "pat", "quinn", "mum", "carer", "guest", "none")
}

// anyPatient returns a random patient id, often of a patient that a user may choose, or an invalid id.
func (w *forgeryFixture) anyPatient(of ...string) string {
	switch w.random.IntN(8) {
	case 0, 1, 2:
		return pickRandom(w, mayHave[w.one(of...)])
	case 3:
		return w.one("", "a1,d1", "../Patient/d1", "Patient/a1", "a1/_history/1", "a1%00", "*", "visit-a1", "l1")
	}
	return w.one("a", "d") + w.one("1", "2", "3", "4")
}

// register registers an EHR launch of an app.
func (w *forgeryFixture) register(user, client string) {
	patient := "l" + base64.RawURLEncoding.EncodeToString([]byte{byte(len(w.launched) >> 8), byte(len(w.launched))})
	patient = strings.ReplaceAll(patient, "_", ".")
	truth := &registeredLaunch{user: user, client: client, expired: w.random.IntN(4) == 0}
	l := &launch.Registration{Launcher: "ehr", ClientID: client, User: user, Context: launch.Context{Patient: patient, Encounter: "visit-" + patient}}
	if l.FHIRUser = fhirUsers[user]; l.FHIRUser != "" && w.random.IntN(2) == 0 {
		l.User = ""
	}
	handle, err := launch.NewLaunches(w.store).Register(w.t.Context(), l)
	if err != nil {
		w.t.Fatal(err)
	}
	if truth.expired {
		key := store.Key("launch", handle)
		value, err := w.store.Get(w.t.Context(), key)
		if err == nil {
			err = w.store.Put(w.t.Context(), key, value, time.Nanosecond)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	w.launched[patient] = truth
	w.handles = append(w.handles, handle)
}

// land follows redirects like a browser, collects sealed requests and returns the final code, if any.
func (w *forgeryFixture) land(user string, b *authorizetest.Browser, r *http.Response) string {
	for range 4 {
		u, err := r.Location()
		if err != nil {
			return ""
		}
		if u.Host != "" && u.Host != "fhir.example.org" {
			return u.Query().Get("code")
		}
		w.sealed = append(w.sealed, issuedCode{text: u.Query().Get("request"), user: user})
		r = b.Get(u.RequestURI())
	}
	return ""
}

// redeem sends a token request as a client.
func (w *forgeryFixture) redeem(as string, form url.Values) authorizetest.LaunchResponse {
	form.Set("client_id", as)
	if as == "clinic" {
		form.Set("client_secret", "clinic-secret-0123456789")
	}
	r := authorizetest.NewBrowser(w.t, w.browsers["alice"].Server).Post("/oauth2/token", form)
	var response authorizetest.LaunchResponse
	if err := json.Unmarshal([]byte(authorizetest.Body(w.t, r)), &response); err != nil {
		w.t.Fatal(err)
	}
	return response
}
