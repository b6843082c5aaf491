package factor

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// Factors knows and checks the factors of local users.
type Factors struct {
	Directory  *people.Directory // whose factors they are
	Enrolments *Enrolments       // what they enrolled
	OTP        *people.OTP       // checks codes of authenticator apps
	Passkeys   *Passkeys         // nil if the issuer's host cannot have any
	Logger     *slog.Logger      // gets failures to release a code
}

// Held are the factors that a person has beside their password.
type Held struct {
	Enrolment
	Configured bool // an authenticator app that the configuration says
}

// Any reports whether the person has any.
func (h *Held) Any() bool { return h.Configured || h.any() }

// HasApp reports whether the person has an authenticator app.
func (h *Held) HasApp() bool { return h.Configured || h.App != nil }

// Local reports whether a person can have factors here.
func (fs *Factors) Local(user *people.User) bool { return fs.Directory.User(user.ID) != nil }

// Of returns the factors of a person: none if they are not a local user.
func (fs *Factors) Of(ctx context.Context, user *people.User) (*Held, error) {
	if !fs.Local(user) {
		return new(Held), nil
	}
	e, err := fs.Enrolments.Load(ctx, user.ID)
	if err != nil {
		return nil, err
	}
	return &Held{*e, user.TOTPSecret != ""}, nil
}

// Lacking reports whether a session must prove a second factor before it gives anything more: the person has set one up
// since, in another session.
func (h *Held) Lacking(by By) bool { return h.Any() && h.Session != by.SID && !by.MultiFactor }

// Lacking is [Held.Lacking] of a person.
func (fs *Factors) Lacking(ctx context.Context, user *people.User, by By) (bool, error) {
	held, err := fs.Of(ctx, user)
	return err == nil && held.Lacking(by), err
}

// Binding is a hash that changes with a person's password and with their factors, but not with the use of one.
func (fs *Factors) Binding(ctx context.Context, user *people.User) (string, error) {
	held, err := fs.Of(ctx, user)
	if err != nil {
		return "", err
	}
	credential := user.Credential()
	h := sha256.New()
	h.Write(credential[:])
	if held.App != nil {
		h.Write([]byte("app\x00" + held.App.Secret + "\x00"))
	}
	for _, p := range held.Passkeys {
		h.Write([]byte("passkey\x00" + base64.RawURLEncoding.EncodeToString(p.Credential.ID) + "\x00"))
	}
	return string(h.Sum(nil)), nil
}
