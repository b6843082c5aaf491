package adminpage

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"
)

// Store keeps the apps and people. An error that the administrator can mend is an [oauth2.Error].
type Store interface {
	// List returns the entries of a kind ([Clients] or [Users]).
	List(ctx context.Context, kind string) ([]Entry, error)

	// Change makes a change, and returns the secret or password that it made, if any.
	Change(ctx context.Context, c Change) (secret string, err error)
}

// The kinds of entries.
const (
	Clients = "clients"
	Users   = "users"
)

// Where entries are kept, beside the configuration. The page changes no others.
const (
	Stored     = "store"
	Registered = "registration"
)

// Entry is an app or a person.
type Entry struct {
	From    string    // configuration, [Stored] or [Registered]
	Since   time.Time // when it was added, if that is known
	Waits   bool      // for approval
	Secret  bool      // an app has one, which can be made anew
	Problem string    // why it is not in force

	Fields
}

// Fields are what an administrator can say of an app or a person.
type Fields struct {
	Name  string // the client_id, or the name to sign in with
	Title string // what people see

	RedirectURIs []string // of an app
	Scopes       []string // that an app may be granted
	LaunchURI    string   // where an EHR opens an app

	Groups   []string // of a person
	FHIRUser string   // a person's own resource
	Email    string   // a person's address
	Disabled bool     // a person may not sign in
}

// Change is what an administrator does to an entry.
type Change struct {
	Kind   string // [Clients] or [Users]
	Action string // add, edit, remove, approve, or secret for a new secret or password
	Secret bool   // an app that is added gets a secret
	Fields        // its name; and all others of what is added or edited
}

// digest tells whether an entry is as an administrator saw it: an app that registered itself can change what it says.
func (e *Entry) digest() string {
	text, err := json.Marshal(e)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
