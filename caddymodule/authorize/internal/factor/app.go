package factor

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

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
