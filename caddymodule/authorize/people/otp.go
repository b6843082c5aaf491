package people

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/totp"
)

// ErrWrongCode refuses a code, be it wrong or used already.
var ErrWrongCode = &oauth2.Error{Code: "access_denied", Description: "wrong or used code of the second factor", Status: http.StatusForbidden}

// OTP lets each code of a person's authenticator app count once.
type OTP struct {
	Durable store.Store  // of the codes that were used
	Logger  *slog.Logger // of codes that stay used
}

// UsedStep is that a code was used: its time step, in place of the one before.
type UsedStep struct {
	key          string // in the durable store
	step, before []byte
}

// usedStepTime is how long after its use a code, or one that came before it, could
// still be right.
const usedStepTime = (2*totp.Skew + 2) * totp.Step

// UseCode takes a code of the person's authenticator app. None counts twice, nor does
// one from before the last that counted; of several that come with the same at one
// moment, one gets in (RFC 6238 §5.2).
func (o *OTP) UseCode(ctx context.Context, user *User, code string) (*UsedStep, error) {
	secret, err := totp.DecodeSecret(user.TOTPSecret)
	if err != nil {
		return nil, err // checked in newDirectory
	}
	step, ok := totp.MatchingStep(secret, strings.ReplaceAll(code, " ", ""), time.Now())
	if !ok {
		return nil, ErrWrongCode
	}
	used := &UsedStep{key: store.Key("otp", user.ID), step: strconv.AppendInt(nil, step, 10)}
	used.before, err = o.Durable.Get(ctx, used.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		err = o.Durable.Add(ctx, used.key, used.step, usedStepTime)
	case err != nil:
		return nil, err
	case !used.follows():
		return nil, ErrWrongCode
	default:
		err = o.Durable.Swap(ctx, used.key, used.before, used.step, usedStepTime)
	}
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrChanged) {
		return nil, ErrWrongCode
	}
	return used, err
}

// follows reports whether the step is later than the one that was used before it.
func (u *UsedStep) follows() bool {
	step, err1 := strconv.ParseInt(string(u.step), 10, 64)
	before, err2 := strconv.ParseInt(string(u.before), 10, 64)
	return err1 == nil && err2 == nil && step > before
}

// ReleaseCode lets a code be used again whose sign-in failed by our fault, and gave
// nobody anything.
func (o *OTP) ReleaseCode(ctx context.Context, user *User, used *UsedStep) {
	before := used.before
	if before == nil {
		before = []byte("0")
	}
	err := o.Durable.Swap(context.WithoutCancel(ctx), used.key, used.step, before, usedStepTime)
	if err != nil && !errors.Is(err, store.ErrChanged) { // by another code
		o.Logger.ErrorContext(ctx, "the code of a sign-in that failed stays used", "user", user.ID, "error", err)
	}
}
