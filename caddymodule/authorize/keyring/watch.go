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
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := k.lookAtSet(ctx)
	if err == nil && k.storing.Load() != nil {
		_, err = k.refreshStorageKeys(ctx)
	}
	k.note(err)
}

func (k *Keyring) lookAtSet(ctx context.Context) error {
	document, err := k.storage.Load(ctx, k.name)
	if old := k.set.Load(); err == nil && old != nil && bytes.Equal(document, old.stored) {
		return nil
	}
	set, err := k.read(ctx)
	if err == nil {
		k.set.Store(set)
	}
	return err
}

// problem is why the stored keys are not those in use.
type problem struct {
	err    error
	logged time.Time
}

// Problem says why the stored keys are not those in use, or could not be read; nil if all is
// well. It does not read the storage.
func (k *Keyring) Problem() error {
	if p := k.problem.Load(); p != nil {
		return p.err
	}
	return nil
}

// note keeps a problem, or that there is none. It is logged at first, and then as often as the
// keys would be read without being watched. It requires mu.
func (k *Keyring) note(err error) {
	if err == nil {
		k.problem.Store(nil)
		return
	}
	p := &problem{err, time.Now()}
	if last := k.problem.Load(); last != nil && time.Since(last.logged) < refresh {
		p.logged = last.logged
	} else if k.set.Load() != nil {
		k.logger.Error("the signing keys could not be read again: going on with those in memory; put the stored ones back before a restart, which would end all tokens", "error", err)
	}
	k.problem.Store(p)
}
