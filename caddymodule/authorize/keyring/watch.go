package keyring

import (
	"bytes"
	"context"
	"time"
)

// watching is how often the stored keys are looked at, by a gateway that shares them.
const watching = time.Second

// watch looks at the keys of a keyring where they are stored.
type watch struct{ keyring *Keyring }

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
	w.keyring.inUse.mu.Lock()
	defer w.keyring.inUse.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.lookAtSet(ctx)
	if err == nil {
		err = w.keyring.storageKeys.look(ctx)
	}
	w.keyring.noteProblem(err)
}

// lookAtSet requires mu.
func (w watch) lookAtSet(ctx context.Context) error {
	document, err := w.keyring.storage.Load(ctx, w.keyring.name)
	if old := w.keyring.inUse.set.Load(); err == nil && old != nil && bytes.Equal(document, old.stored) {
		return nil
	}
	set, err := w.keyring.read(ctx)
	if err == nil {
		w.keyring.inUse.set.Store(set)
	}
	return err
}
