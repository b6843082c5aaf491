package token_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// lateReads is a store whose steps read after they have made their changes, as PostgreSQL
// does, with something else happening in between, once.
type lateReads struct {
	store.Store
	between func()
}

func (s *lateReads) Do(ctx context.Context, calls ...*store.Call) error {
	var gets, changes []*store.Call
	for _, c := range calls {
		if c.Op == store.Get {
			gets = append(gets, c)
		} else {
			changes = append(changes, c)
		}
	}
	if len(changes) > 0 && len(gets) > 0 && s.between != nil {
		if err := s.Store.Do(ctx, changes...); err != nil {
			return err
		}
		between := s.between
		s.between = nil
		between()
		return s.Store.Do(ctx, gets...)
	}
	return s.Store.Do(ctx, calls...)
}

// Of several exchanges of one code exactly one wins, even if another one has ended its tokens
// before it reads whether they still stand.
func TestCodeReplayedBeforeTheReads(t *testing.T) {
	t.Parallel()
	late := &lateReads{Store: store.NewMemory(0, 0)}
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { servertest.Refreshing(c); c.Store = late }))
	form := servertest.CodeForm(b.Code(servertest.OfflineAccess(nil)), nil)
	replayed := 0
	late.between = func() { replayed = b.Post("/oauth2/token", form).StatusCode }
	if won := b.Post("/oauth2/token", form).StatusCode; won != http.StatusOK || replayed != http.StatusBadRequest {
		t.Errorf("first exchange: %d, the one in between: %d", won, replayed)
	}
}

// Likewise of several uses of one refresh token.
func TestRefreshTokenReplayedBeforeTheReads(t *testing.T) {
	t.Parallel()
	late := &lateReads{Store: store.NewMemory(0, 0)}
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
		servertest.Refreshing(c)
		c.Store, c.RefreshTokenGrace = late, -1
	}))
	form := servertest.RefreshForm(b.Tokens(servertest.OfflineAccess(nil)).Refresh, nil)
	replayed := 0
	late.between = func() { replayed = b.Post("/oauth2/token", form).StatusCode }
	if won := b.Post("/oauth2/token", form).StatusCode; won != http.StatusOK || replayed != http.StatusBadRequest {
		t.Errorf("first use: %d, the one in between: %d", won, replayed)
	}
}
