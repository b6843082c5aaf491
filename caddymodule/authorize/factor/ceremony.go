package factor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Ceremony is a challenge that a page hands to the browser. The browser keeps it, sealed, so
// that one that is never answered takes no memory here.
type Ceremony struct {
	Options string // for navigator.credentials, in JSON
	Sealed  string // comes back with the answer
}

// begin seals a challenge for this browser and one purpose.
func (ps *Passkeys) begin(w http.ResponseWriter, r *http.Request, purpose string, options any, session *webauthn.SessionData) (*Ceremony, error) {
	sealed, err := ps.sealer.SealJSON(w, r, "passkey "+purpose, session)
	if err != nil {
		return nil, err
	}
	shown, err := json.Marshal(options)
	return &Ceremony{Options: string(shown), Sealed: sealed}, err
}

// open opens what begin sealed.
func (ps *Passkeys) open(r *http.Request, purpose, sealed string) (session webauthn.SessionData, err error) {
	err = ps.sealer.UnsealJSON(r, "passkey "+purpose, sealed, ceremonyLifetime, refusePasskey(keyring.ErrUnsealed), &session)
	return session, err
}

var errReplayed = errors.New("the challenge was answered before")

// spend uses a challenge up. Call it when the answer is known to be right: wrong ones, which
// need no key, must not fill the store.
func (ps *Passkeys) spend(ctx context.Context, user string, session webauthn.SessionData) error {
	key := challengeKey(session)
	err := ps.challenges.Do(ctx, append(ps.answers.Adding(user, key), &store.Call{Op: store.Add, Key: key, TTL: spentLifetime})...)
	if errors.Is(err, store.ErrExists) {
		return refusePasskey(errReplayed)
	}
	return err
}

func challengeKey(session webauthn.SessionData) string {
	return store.Key("passkey-challenge", session.Challenge)
}

// release lets a challenge be answered again if what followed failed through our fault.
func (ps *Passkeys) release(ctx context.Context, session webauthn.SessionData, err error) {
	if _, refused := errors.AsType[*oauth2.Error](err); err != nil && !refused {
		_ = ps.challenges.Delete(context.WithoutCancel(ctx), challengeKey(session)) // else it expires
	}
}
