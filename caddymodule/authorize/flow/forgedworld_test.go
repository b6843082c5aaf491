package flow_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// mayHave is whose records a person may open an app for, without an EHR.
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

// wards shows each clinician their own patients, and everybody else what a guard would. Every
// patient has one visit.
type wards struct{}

func (wards) Get(_ context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	resourceType, id, read := strings.Cut(path, "/")
	sees := func(patient string) bool {
		if by.Patient != "" {
			return patient == by.Patient
		}
		return by.FHIRUser == servertest.FHIRBase+"/Practitioner/"+by.Subject && slices.Contains(mayHave[by.Subject], patient)
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

// registeredTruth is what a launch was registered for. Each has a patient of its own, whom
// nobody has otherwise.
type registeredTruth struct {
	user, client string
	expired      bool
	codes        int // that came of it
}

// issuedCode is a code, a refresh token or a page's request, and whose.
type issuedCode struct{ text, client, user string }

// forgedWorld is a server, everybody's browser, and what attackers have got hold of.
type forgedWorld struct {
	t        *testing.T
	random   *rand.Rand
	store    store.Store
	browsers map[string]*servertest.Browser
	launched map[string]*registeredTruth // by patient

	handles                []string
	sealed, codes, refresh []issuedCode
	came                   map[string]int // how many tokens, by patient
}

var forgedClients = []string{"app", "other", "clinic"}

func newForgedWorld(t *testing.T) *forgedWorld {
	t.Helper()
	w := &forgedWorld{
		t: t, random: rand.New(rand.NewPCG(12, 34)), browsers: map[string]*servertest.Browser{},
		launched: map[string]*registeredTruth{}, came: map[string]int{},
	}
	server := servertest.New(t, func(c *authorize.Config) {
		c.Records, c.Users, c.Clients = wards{}, nil, nil
		for name := range mayHave {
			c.Users = append(c.Users, people.User{ID: name, PasswordHash: "right", FHIRUser: fhirUsers[name]})
			if name == "guest" {
				c.Users[len(c.Users)-1].Patients = mayHave[name]
			}
		}
		for _, id := range forgedClients {
			c.Clients = append(c.Clients, client.Client{ID: id, RedirectURIs: []string{servertest.Callback}, Scopes: servertest.LaunchScopes, PKCE: client.PKCEOptional})
		}
		servertest.SigningFast(c)
		c.Clients[2].Secret = "clinic-secret-0123456789"
		w.store = c.Store
	})
	for name := range mayHave {
		w.browsers[name] = servertest.NewBrowser(t, server)
		w.browsers[name].SignIn(servertest.Request(nil), name, "right")
	}
	return w
}

func pick[T any](w *forgedWorld, list []T) (one T) {
	if len(list) == 0 {
		return one
	}
	return list[w.random.IntN(len(list))]
}

func (w *forgedWorld) one(of ...string) string { return pick(w, of) }

// anybody is somebody, always in the same order of the random numbers.
func (w *forgedWorld) anybody() string {
	return w.one("alice", "dora", "pat", "quinn", "mum", "carer", "guest", "none")
}

// anyPatient is a patient, often one of somebody's own, or what is none.
func (w *forgedWorld) anyPatient(of ...string) string {
	switch w.random.IntN(8) {
	case 0, 1, 2:
		return pick(w, mayHave[w.one(of...)])
	case 3:
		return w.one("", "a1,d1", "../Patient/d1", "Patient/a1", "a1/_history/1", "a1%00", "*", "visit-a1", "l1")
	}
	return w.one("a", "d") + w.one("1", "2", "3", "4")
}

// register is an EHR that launches an app.
func (w *forgedWorld) register(user, client string) {
	patient := "l" + base64.RawURLEncoding.EncodeToString([]byte{byte(len(w.launched) >> 8), byte(len(w.launched))})
	patient = strings.ReplaceAll(patient, "_", ".")
	truth := &registeredTruth{user: user, client: client, expired: w.random.IntN(4) == 0}
	l := &launch.Registered{Launcher: "ehr", ClientID: client, User: user, Context: launch.Context{Patient: patient, Encounter: "visit-" + patient}}
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

// land follows an answer as the browser does, keeps the sealed requests on the way, and returns
// the code that it ends with, if it does.
func (w *forgedWorld) land(user string, b *servertest.Browser, r *http.Response) string {
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
func (w *forgedWorld) redeem(as string, form url.Values) servertest.LaunchResponse {
	form.Set("client_id", as)
	if as == "clinic" {
		form.Set("client_secret", "clinic-secret-0123456789")
	}
	r := servertest.NewBrowser(w.t, w.browsers["alice"].Server).Post("/oauth2/token", form)
	var response servertest.LaunchResponse
	if err := json.Unmarshal([]byte(servertest.Body(w.t, r)), &response); err != nil {
		w.t.Fatal(err)
	}
	return response
}
