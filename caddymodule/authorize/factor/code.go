package factor

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// UseCode accepts a code of the person's authenticator app, or a recovery code, once. The
// error for any other is [people.ErrWrongCode]. It returns how to release the code, if its
// sign-in fails through our fault.
func (fs *Factors) UseCode(ctx context.Context, user *people.User, code string) (release func(context.Context), err error) {
	if recovery := recoveryCode(code); recovery != "" {
		return fs.useRecoveryCode(ctx, user, recovery)
	}
	held, err := fs.Of(ctx, user)
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
			fs.Logger.ErrorContext(ctx, "the recovery code of a sign-in that failed stays used", "user", user.ID, "error", err)
		}
	}, err
}

// EnrolApp enrols an authenticator app, once a code shows that it has the secret. It returns
// the recovery codes, if these are the person's first. The code counts as used.
func (fs *Factors) EnrolApp(ctx context.Context, user *people.User, by By, secret, code string) (recovery []string, err error) {
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

// RemoveApp removes a person's own authenticator app.
func (fs *Factors) RemoveApp(ctx context.Context, user *people.User, by By) error {
	return fs.Enrolments.changeBy(ctx, user, by, func(e *Enrolment) error {
		if e.App == nil {
			return ErrUnknown
		}
		e.App = nil
		e.dropRecovery(user)
		return nil
	})
}
