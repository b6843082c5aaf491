package people

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// ErrWrongCode refuses a wrong or used code.
var ErrWrongCode = &oauth2.Error{Code: "access_denied", Description: "wrong or used code of the second factor", Status: http.StatusForbidden}

// OTP accepts each code of a person's authenticator app once.
type OTP struct {
	Durable store.Store  // holds the last used time steps
	Logger  *slog.Logger // gets failures to release a code
}

// UsedStep is the time step of a used code, and the one used before.
type UsedStep struct {
	key          string // in the durable store
	step, before []byte
}

// usedStepLifetime is how long after its use a code, or an earlier one, could be valid.
const usedStepLifetime = (2*totp.Skew + 2) * totp.Step

// UseCode accepts a code of the person's authenticator app if it is later than the last
// one used. Of several requests with the same code, one succeeds (RFC 6238 §5.2).
func (o *OTP) UseCode(ctx context.Context, user *User, code string) (*UsedStep, error) {
	secret, err := totp.DecodeSecret(user.TOTPSecret)
	if err != nil {
		return nil, err // NewDirectory has checked it
	}
	step, ok := totp.MatchingStep(secret, strings.ReplaceAll(code, " ", ""), time.Now())
	if !ok {
		return nil, ErrWrongCode
	}
	used := &UsedStep{key: store.Key("otp", user.ID), step: strconv.AppendInt(nil, step, 10)}
	used.before, err = o.Durable.Get(ctx, used.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return nil, err
	case !used.follows():
		return nil, ErrWrongCode
	}
	err = o.Durable.Do(ctx, store.Replacing(used.key, used.before, used.step, usedStepLifetime))
	if store.Lost(err) {
		return nil, ErrWrongCode
	}
	return used, err
}

// follows reports whether the step is later than the one used before.
func (u *UsedStep) follows() bool {
	step, err1 := strconv.ParseInt(string(u.step), 10, 64)
	before, err2 := strconv.ParseInt(string(u.before), 10, 64)
	return err1 == nil && err2 == nil && step > before
}

// ReleaseCode lets a code be used again if its sign-in failed through our fault.
func (o *OTP) ReleaseCode(ctx context.Context, user *User, used *UsedStep) {
	before := used.before
	if before == nil {
		before = []byte("0")
	}
	err := o.Durable.Swap(context.WithoutCancel(ctx), used.key, used.step, before, usedStepLifetime)
	if err != nil && !errors.Is(err, store.ErrChanged) { // by another code
		o.Logger.ErrorContext(ctx, "the code of a sign-in that failed stays used", "user", user.ID, "error", err)
	}
}
