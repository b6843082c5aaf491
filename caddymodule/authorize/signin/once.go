package signin

import (
	"context"
	"errors"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Once is the use of something that may be used only once.
type Once struct {
	Store  store.Store   // remembers the use
	Before []*store.Call // made with Call
	Call   *store.Call   // that uses it up in the store; nil if nothing is stored
	Spent  error         // what it means that the call finds it used
	After  func() error  // what follows in this process; may be nil
}

// use makes steps, and uses it up with the last of them.
func (o *Once) use(ctx context.Context, steps ...store.Step) error {
	if o == nil {
		return store.Do(ctx, steps...)
	}
	if o.Call != nil {
		o.Call.Err = nil
		steps = append(slices.Clip(steps), store.In(o.Store, append(slices.Clip(o.Before), o.Call)...))
	}
	if err := store.Do(ctx, steps...); err != nil {
		return o.explain(err)
	}
	if o.After == nil {
		return nil
	}
	return o.After()
}

func (o *Once) explain(err error) error {
	if o.Call != nil && o.Spent != nil && (errors.Is(o.Call.Err, store.ErrNotFound) || errors.Is(o.Call.Err, store.ErrExists)) {
		return o.Spent
	}
	return err
}
