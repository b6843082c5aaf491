package flow

import (
	"context"
	"errors"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// singleUse is the use of something that may be used only once.
type singleUse struct {
	store  store.Store
	before []*store.Call // made with call
	call   *store.Call   // that uses it up in the store; nil if nothing is stored
	spent  error         // what it means that the call finds it used
	after  func() error  // what follows in this process; may be nil
}

// use makes steps, and uses it up with the last of them.
func (u *singleUse) use(ctx context.Context, steps ...store.Step) error {
	if u == nil {
		return store.Do(ctx, steps...)
	}
	if u.call != nil {
		u.call.Err = nil
		steps = append(slices.Clip(steps), store.In(u.store, append(slices.Clip(u.before), u.call)...))
	}
	if err := store.Do(ctx, steps...); err != nil {
		return u.explain(err)
	}
	if u.after == nil {
		return nil
	}
	return u.after()
}

func (u *singleUse) explain(err error) error {
	if u.call != nil && u.spent != nil && (errors.Is(u.call.Err, store.ErrNotFound) || errors.Is(u.call.Err, store.ErrExists)) {
		return u.spent
	}
	return err
}
