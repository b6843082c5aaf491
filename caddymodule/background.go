package caddymodule

import "context"

// background is work that goes on until it is stopped.
type background struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func inBackground(ctx context.Context, run func(context.Context)) *background {
	ctx, cancel := context.WithCancel(ctx)
	b := &background{cancel, make(chan struct{})}
	go func() { defer close(b.done); run(ctx) }()
	return b
}

// stop waits until the work is over; nil: there was none.
func (b *background) stop() {
	if b != nil {
		b.cancel()
		<-b.done
	}
}
