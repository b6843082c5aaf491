package keyring

import (
	"bytes"
	"context"
	"time"
)

// watching is how often the stored keys are looked at, by a gateway that shares them.
const watching = time.Second

// Watch looks at the keys of an authentic storage until ctx ends: those that other gateways
// made are used as soon as they are stored, and those that the storage lost are put back before
// they are missed. It leaves any other storage alone.
func (k *Keyring) Watch(ctx context.Context) {
	if !k.storage.IsAuthentic() {
		return
	}
	tick := time.NewTicker(watching)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.look(ctx)
		}
	}
}

// look reads the keys again if they are not stored as they were read. What fails is noted, and
// tried again with the next look.
func (k *Keyring) look(ctx context.Context) {
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := k.lookAtSet(ctx)
	if err == nil {
		err = k.storageKeys.look(ctx)
	}
	k.noteProblem(err)
}

// lookAtSet requires mu.
func (k *Keyring) lookAtSet(ctx context.Context) error {
	document, err := k.storage.Load(ctx, k.name)
	if old := k.inUse.set.Load(); err == nil && old != nil && bytes.Equal(document, old.stored) {
		return nil
	}
	set, err := k.read(ctx)
	if err == nil {
		k.inUse.set.Store(set)
	}
	return err
}
