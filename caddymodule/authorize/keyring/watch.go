package keyring

import (
	"bytes"
	"context"
	"time"
)

// watching is how often the stored keys are looked at, by a gateway that shares them.
const watching = time.Second

// watch looks at the keys of a keyring where they are stored.
type watch struct{ *Keyring }

// Watch looks at the keys of an authentic storage until ctx ends: those that other gateways
// made are used as soon as they are stored, and those that the storage lost are put back before
// they are missed. It leaves any other storage alone.
func (k *Keyring) Watch(ctx context.Context) {
	if k.storage.IsAuthentic() {
		watch{k}.run(ctx)
	}
}

func (w watch) run(ctx context.Context) {
	tick := time.NewTicker(watching)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(ctx)
		}
	}
}

// look reads the keys again if they are not stored as they were read. What fails is noted, and
// tried again with the next look.
func (w watch) look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.lookAtSet(ctx)
	if err == nil {
		err = w.storageKeyring.look(ctx)
	}
	w.noteProblem(err)
}

// lookAtSet requires mu.
func (w watch) lookAtSet(ctx context.Context) error {
	document, err := w.storage.Load(ctx, w.name)
	if old := w.set.Load(); err == nil && old != nil && bytes.Equal(document, old.stored) {
		return nil
	}
	set, err := w.read(ctx)
	if err == nil {
		w.set.Store(set)
	}
	return err
}
