package factor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// UseCode accepts a code of the user's authenticator app, or a recovery code, once. The error is [people.ErrWrongCode]
// for any other code. The returned function makes the code usable again after an internal error.
func (fs *Factors) UseCode(ctx context.Context, user *people.User, code string) (release func(context.Context), err error) {
	if recovery := recoveryCode(code); recovery != "" {
		return fs.useRecoveryCode(ctx, user, recovery)
	}
	held, err := fs.Load(ctx, user)
	if err != nil {
		return nil, err
	}
	with := *user
	switch {
	case held.Configured:
	case held.App != nil:
		with.TOTPSecret = held.App.Secret
	default:
		return nil, people.ErrWrongCode
	}
	used, err := fs.OTP.UseCode(ctx, &with, code)
	return func(ctx context.Context) { fs.OTP.ReleaseCode(ctx, user, used) }, err
}

func (fs *Factors) useRecoveryCode(ctx context.Context, user *people.User, code string) (release func(context.Context), err error) {
	used, err := fs.useRecovery(ctx, user.ID, code)
	if err == nil && !used {
		err = people.ErrWrongCode
	}
	return func(ctx context.Context) {
		if err := fs.releaseRecovery(context.WithoutCancel(ctx), user.ID, code); err != nil {
			fs.Logger.ErrorContext(ctx, "recovery code not restored after a failed sign-in", "user", user.ID, "error", err)
		}
	}, err
}

// EnrolApp enrolls an authenticator app after a code has proved possession of the secret. It
// returns recovery codes if these are the user's first. The code counts as used.
func (fs *Factors) EnrolApp(ctx context.Context, user *people.User, by SessionContext, secret, code string) (recovery []string, err error) {
	if user.TOTPSecret != "" {
		return nil, ErrConfigured
	}
	with := *user
	with.TOTPSecret = secret
	used, err := fs.OTP.UseCode(ctx, &with, code)
	if err != nil {
		return nil, err
	}
	err = fs.Enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		if e.App != nil {
			return ErrEnrolled
		}
		e.App = &App{Secret: secret, Added: time.Now().UTC()}
		recovery = e.firstRecovery(user.ID)
		return nil
	})
	if err != nil {
		fs.OTP.ReleaseCode(ctx, user, used)
		return nil, err
	}
	return recovery, nil
}

// RemoveApp removes a user's enrolled authenticator app.
func (fs *Factors) RemoveApp(ctx context.Context, user *people.User, by SessionContext) error {
	return fs.Enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		if e.App == nil {
			return ErrUnknown
		}
		e.App = nil
		e.dropRecovery(user)
		return nil
	})
}

const (
	recoveryCodes  = 10
	recoveryLength = 16 // letters: 80 bits, sufficient for an unsalted fast hash
)

var recoveryEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding) // without l, o, 0, 1

// newRecovery replaces the recovery codes and returns the new ones.
func (e *Enrolment) newRecovery(user string) (codes []string) {
	e.Recovery = nil
	for range recoveryCodes {
		code := recoveryEncoding.EncodeToString(oauth2.RandomBytes(recoveryLength * 5 / 8))
		e.Recovery = append(e.Recovery, recoveryHash(user, code))
		codes = append(codes, code[:4]+"-"+code[4:8]+"-"+code[8:12]+"-"+code[12:])
	}
	return codes
}

// firstRecovery creates recovery codes with the first factor, so that losing it does not lock the user out.
func (e *Enrolment) firstRecovery(user string) []string {
	if len(e.Recovery) > 0 {
		return nil
	}
	return e.newRecovery(user)
}

// dropRecovery removes the recovery codes with the last factor.
func (e *Enrolment) dropRecovery(user *people.User) {
	if !e.any() && user.TOTPSecret == "" {
		e.Recovery = nil
	}
}

func recoveryHash(user, code string) []byte {
	sum := sha256.Sum256([]byte("recovery\x00" + user + "\x00" + code))
	return sum[:]
}

// recoveryCode normalizes a typed recovery code by removing separators; "" if it cannot be a recovery code.
func recoveryCode(typed string) string {
	code := strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(typed))
	if len(code) != recoveryLength {
		return ""
	}
	return code
}

// RenewRecovery replaces a user's recovery codes, which requires another factor.
func (fs *Factors) RenewRecovery(ctx context.Context, user *people.User, by SessionContext) (codes []string, err error) {
	err = fs.Enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		if !e.any() && user.TOTPSecret == "" {
			return ErrUnknown
		}
		codes = e.newRecovery(user.ID)
		return nil
	})
	return codes, err
}

// useRecovery uses a recovery code up; false if it is not one of the user's.
func (fs *Factors) useRecovery(ctx context.Context, user, code string) (used bool, err error) {
	hash := recoveryHash(user, code)
	same := func(other []byte) bool { return bytes.Equal(other, hash) } // of 80 random bits: timing reveals nothing
	err = fs.Enrolments.change(ctx, user, func(e *Enrolment) error {
		if used = slices.ContainsFunc(e.Recovery, same); !used {
			return errUnchanged
		}
		e.Recovery = slices.DeleteFunc(e.Recovery, same)
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return used && err == nil, err
}

// releaseRecovery restores a recovery code after an internal error.
func (fs *Factors) releaseRecovery(ctx context.Context, user, code string) error {
	return fs.Enrolments.change(ctx, user, func(e *Enrolment) error {
		e.Recovery = append(e.Recovery, recoveryHash(user, code))
		return nil
	})
}

// errUnchanged leaves an enrolment unchanged.
var errUnchanged = errors.New("nothing to change")
