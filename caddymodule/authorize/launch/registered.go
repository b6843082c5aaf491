package launch

import (
	"context"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Lifetime is how long a registered launch can be used: the time that an app takes to open,
// and a person to sign in.
const Lifetime = 10 * time.Minute

// Registered is a context that an EHR registered, for one app and one person.
type Registered struct {
	Context
	Launcher string `json:"launcher"`            // the client that registered it; empty for the launch page, where the person chooses
	ClientID string `json:"client_id"`           // the app that it is for
	User     string `json:"user,omitempty"`      // the sub of the person, or
	FHIRUser string `json:"fhir_user,omitempty"` // the reference to them

	// Simulated is what is to go wrong, so that the app can be tried with it: the name of one of
	// [Simulated]; or "". Launches of clients have none.
	Simulated string `json:"simulated,omitempty"`
}

// ShortToken is the name of what goes wrong after the authorization response: access tokens end
// within seconds.
const ShortToken = "short_token"

// Simulated are the errors that a launch can have, by name: that of the authorization response, or
// nil for [ShortToken].
var Simulated = map[string]*oauth2.Error{
	"access_denied": {Code: "access_denied", Description: "simulated: the person refuses", Shown: true},
	"server_error":  {Code: "server_error", Description: "simulated: the authorization server fails", Shown: true},
	"old_launch":    ErrUnknown,
	ShortToken:      nil,
}

// SimulatedError is the error that the authorization response is to have, or nil.
func (l *Registered) SimulatedError() error {
	if e := Simulated[l.Simulated]; e != nil {
		return e
	}
	return nil
}

// IsFor reports whether a person may use a launch.
func (l *Registered) IsFor(sub, fhirUser string) bool {
	return (l.User == "" || l.User == sub) && (l.FHIRUser == "" || l.FHIRUser == fhirUser)
}

// ErrUnknown says that a launch is wrong, was used, is too old, or belongs to another app:
// which of these, nobody but its owner should learn.
var ErrUnknown = &oauth2.Error{
	Code:        "invalid_request",
	Description: "launch is unknown: it was used already, is older than ten minutes, or is for another app. Launch the app from the EHR again.",
	Shown:       true,
}

// ErrOtherPerson says that a launch is for another person than the one who signed in.
var ErrOtherPerson = &oauth2.Error{
	Code:        "invalid_request",
	Description: "launch is for another person than the one who is signed in. Launch the app from the EHR again.",
	Shown:       true,
}

// maxLaunches is how many launches for one person, by one client, can wait at a time. The oldest
// of more end.
const maxLaunches = 100

// Launches keeps what EHRs registered.
type Launches struct {
	Store  store.Store // for [Lifetime]
	recent *store.Latest
}

// NewLaunches returns the launches in a store.
func NewLaunches(in store.Store) *Launches {
	return &Launches{Store: in, recent: store.NewLatest(maxLaunches, Lifetime)}
}

func key(handle string) string { return store.Key("launch", handle) }

// Register stores a launch, and returns the handle that the app is to send as launch.
func (ls *Launches) Register(ctx context.Context, l *Registered) (string, error) {
	value, err := store.ToJSON(l)
	if err != nil {
		return "", err
	}
	handle := oauth2.RandomToken()
	whose := strings.Join([]string{l.Launcher, l.User, l.FHIRUser}, "\x00")
	calls := append(ls.recent.Adding(whose, key(handle)), &store.Call{Op: store.Add, Key: key(handle), Value: value, TTL: Lifetime})
	return handle, ls.Store.Do(ctx, calls...)
}

// Find returns the launch of a handle for an app. Its error is [ErrUnknown].
func (ls *Launches) Find(ctx context.Context, handle, clientID string) (*Registered, error) {
	l, err := store.GetJSON[Registered](ctx, ls.Store, key(handle))
	switch {
	case err != nil:
		return nil, err
	case l == nil || l.ClientID != clientID:
		return nil, ErrUnknown
	}
	return l, nil
}

// Using returns the call that uses a launch up. Of several at once exactly one succeeds; it
// fails with [store.ErrNotFound] in the others, which stands for [ErrUnknown].
func (ls *Launches) Using(handle string) *store.Call {
	return &store.Call{Op: store.Take, Key: key(handle)}
}
