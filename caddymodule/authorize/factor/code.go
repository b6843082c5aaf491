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

// UseCode accepts a code of the user's authenticator app, or a recovery code, and marks it as used. The error is
// [people.ErrWrongCode] for any other code. After an internal error, release makes the code usable again.
func (fs *Factors) UseCode(ctx context.Context, user *people.User, code string) (release func(context.Context), err error) {
	if recovery := normalizeRecoveryCode(code); recovery != "" {
		return fs.verifyRecoveryCode(ctx, user, recovery)
	}
	enrolled, err := fs.Load(ctx, user)
	if err != nil {
		return nil, err
	}
	withSecret := *user
	switch {
	case enrolled.HasConfiguredApp:
	case enrolled.App != nil:
		withSecret.TOTPSecret = enrolled.App.Secret
	default:
		return nil, people.ErrWrongCode
	}
	used, err := fs.OTP.UseCode(ctx, &withSecret, code)
	return func(ctx context.Context) { fs.OTP.ReleaseCode(ctx, user, used) }, err
}

func (fs *Factors) verifyRecoveryCode(ctx context.Context, user *people.User, code string) (release func(context.Context), err error) {
	used, err := fs.consumeRecoveryCode(ctx, user.ID, code)
	if err == nil && !used {
		err = people.ErrWrongCode
	}
	return func(ctx context.Context) {
		if err := fs.restoreRecoveryCode(context.WithoutCancel(ctx), user.ID, code); err != nil {
			fs.Logger.ErrorContext(ctx, "failed to restore recovery code after a failed sign-in", "user", user.ID, "error", err)
		}
	}, err
}

// EnrollApp enrolls an authenticator app if code proves possession of the secret. It returns recovery codes if these are the
// user's first. The code is marked as used.
func (fs *Factors) EnrollApp(ctx context.Context, user *people.User, by SessionContext, secret, code string) (recovery []string, err error) {
	if user.TOTPSecret != "" {
		return nil, ErrConfiguredApp
	}
	withSecret := *user
	withSecret.TOTPSecret = secret
	used, err := fs.OTP.UseCode(ctx, &withSecret, code)
	if err != nil {
		return nil, err
	}
	err = fs.Enrollments.updateInSession(ctx, user, by, func(e *Enrollment) error {
		if e.App != nil {
			return ErrAlreadyEnrolled
		}
		e.App = &App{Secret: secret, EnrolledAt: time.Now().UTC()}
		recovery = e.ensureRecoveryCodes(user.ID)
		return nil
	})
	if err != nil {
		fs.OTP.ReleaseCode(ctx, user, used)
		return nil, err
	}
	return recovery, nil
}

// RemoveApp removes an authenticator app that the user has enrolled.
func (fs *Factors) RemoveApp(ctx context.Context, user *people.User, by SessionContext) error {
	return fs.Enrollments.updateInSession(ctx, user, by, func(e *Enrollment) error {
		if e.App == nil {
			return ErrUnknownFactor
		}
		e.App = nil
		e.dropUnusableCodes(user)
		return nil
	})
}

const (
	recoveryCodeCount  = 10
	recoveryCodeLength = 16 // letters: 80 random bits, sufficient for an unsalted fast hash
)

var recoveryEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding) // no l, o, 0 or 1

// renewRecoveryCodes replaces the recovery codes and returns the new ones.
func (e *Enrollment) renewRecoveryCodes(user string) (codes []string) {
	e.RecoveryCodeHashes = nil
	for range recoveryCodeCount {
		code := recoveryEncoding.EncodeToString(oauth2.RandomBytes(recoveryCodeLength * 5 / 8))
		e.RecoveryCodeHashes = append(e.RecoveryCodeHashes, hashRecoveryCode(user, code))
		codes = append(codes, code[:4]+"-"+code[4:8]+"-"+code[8:12]+"-"+code[12:])
	}
	return codes
}

// ensureRecoveryCodes returns new recovery codes if the user has none, in case the user loses the first factor.
func (e *Enrollment) ensureRecoveryCodes(user string) []string {
	if len(e.RecoveryCodeHashes) > 0 {
		return nil
	}
	return e.renewRecoveryCodes(user)
}

// dropUnusableCodes removes the recovery codes if the user no longer has a second factor.
func (e *Enrollment) dropUnusableCodes(user *people.User) {
	if !e.hasFactor() && user.TOTPSecret == "" {
		e.RecoveryCodeHashes = nil
	}
}

func hashRecoveryCode(user, code string) []byte {
	sum := sha256.Sum256([]byte("recovery\x00" + user + "\x00" + code))
	return sum[:]
}

// normalizeRecoveryCode returns a typed code in lower case without separators; "" if its length is not that of a recovery code.
func normalizeRecoveryCode(typed string) string {
	code := strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(typed))
	if len(code) != recoveryCodeLength {
		return ""
	}
	return code
}

// RenewRecoveryCodes replaces a user's recovery codes. The user must have another second factor.
func (fs *Factors) RenewRecoveryCodes(ctx context.Context, user *people.User, by SessionContext) (codes []string, err error) {
	err = fs.Enrollments.updateInSession(ctx, user, by, func(e *Enrollment) error {
		if !e.hasFactor() && user.TOTPSecret == "" {
			return ErrUnknownFactor
		}
		codes = e.renewRecoveryCodes(user.ID)
		return nil
	})
	return codes, err
}

// consumeRecoveryCode removes a recovery code, so that it cannot be used again. used is false if the user has no such code.
func (fs *Factors) consumeRecoveryCode(ctx context.Context, user, code string) (used bool, err error) {
	hash := hashRecoveryCode(user, code)
	isMatch := func(other []byte) bool { return bytes.Equal(other, hash) } // hashes of 80 random bits: timing reveals nothing useful
	err = fs.Enrollments.update(ctx, user, func(e *Enrollment) error {
		if used = slices.ContainsFunc(e.RecoveryCodeHashes, isMatch); !used {
			return errUnchanged
		}
		e.RecoveryCodeHashes = slices.DeleteFunc(e.RecoveryCodeHashes, isMatch)
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return used && err == nil, err
}

// restoreRecoveryCode makes a recovery code usable again after an internal error.
func (fs *Factors) restoreRecoveryCode(ctx context.Context, user, code string) error {
	return fs.Enrollments.update(ctx, user, func(e *Enrollment) error {
		e.RecoveryCodeHashes = append(e.RecoveryCodeHashes, hashRecoveryCode(user, code))
		return nil
	})
}

// errUnchanged makes an update leave an enrollment unchanged.
var errUnchanged = errors.New("factor enrollment is unchanged")
