package adminpage

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

// A new entry has a name and a kind.
func TestNewEntryIsChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(url.Values){
		"no name":      func(f url.Values) { f.Set("name", "") },
		"no kind":      func(f url.Values) { f.Set("kind", "") },
		"no such kind": func(f url.Values) { f.Set("kind", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := newShelf()
			b := asAdmin(t, kept, nil)
			form := authorizetest.ReadForm(open(b, path+"?kind=users")).Fields
			form.Set("action", "add")
			form.Set("name", "zoe")
			change(form)
			if r := b.Post(path, form); r.StatusCode != http.StatusBadRequest || len(kept.changes) != 0 {
				t.Errorf("%d, changes %+v", r.StatusCode, kept.changes)
			}
		})
	}
}

// People of the configuration are not listed, even if a search names them.
func TestConfiguredPeopleAreNotListed(t *testing.T) {
	t.Parallel()
	b := asAdmin(t, newShelf(), nil)
	if page := open(b, path+"?search=bob"); strings.Contains(page, "name=bob") || strings.Contains(page, ">bob") {
		t.Error(page)
	}
}

// Somebody without the scope who opens the page, or sends a form, is on the audit trail.
func TestRefusedAdministratorIsAudited(t *testing.T) {
	t.Parallel()
	var events []audit.Event
	kept := newShelf()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, administered(kept, func(c *authorize.Config) {
		c.Users[0].Groups = []string{"nurses"}
		c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
	})))
	signInAs(b)
	for _, send := range []func() *http.Response{
		func() *http.Response { return b.Get(path) },
		func() *http.Response {
			return b.Post(path, url.Values{"action": {"add"}, "kind": {"users"}, "name": {"zoe"}})
		},
	} {
		events = nil
		if r := send(); r.StatusCode != http.StatusForbidden || len(events) != 1 || events[0].Actor != "alice" || events[0].Err == nil || len(kept.changes) != 0 {
			t.Errorf("%d, %d changes, %+v", r.StatusCode, len(kept.changes), events)
		}
	}
}

// slowShelf takes a second to list entries, and counts how many lists are made at once.
type slowShelf struct {
	*shelf
	mu         sync.Mutex
	lists, max int
}

func (s *slowShelf) List(ctx context.Context, kind string) ([]Entry, error) {
	s.mu.Lock()
	s.lists++
	s.max = max(s.max, s.lists)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	s.lists--
	s.mu.Unlock()
	return s.shelf.List(ctx, kind)
}

// Lists are costly: only one page is made at a time.
func TestAdministratorsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := &slowShelf{shelf: newShelf()}
		b := authorizetest.NewBrowser(t, authorizetest.New(t, administered(kept, nil)))
		signInAs(b)
		var group sync.WaitGroup
		for range 5 {
			other := authorizetest.NewBrowser(t, b.Server)
			maps.Copy(other.Cookies, b.Cookies)
			group.Go(func() { other.Get(path) })
		}
		group.Wait()
		if kept.max != 1 {
			t.Errorf("%d lists at once", kept.max)
		}
	})
}
