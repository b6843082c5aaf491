package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// fault is a temporary failure of one or more servers.
type fault struct {
	name  string
	lasts time.Duration
	begin func() error
	end   func() error
}

// occurredFault is a fault with its start and end, relative to the start of the record.
type occurredFault struct {
	name       string
	begin, end time.Duration
}

// saboteur makes servers of a deployment fail, one fault at a time.
type saboteur struct {
	*deployment.Deployment
	random *rand.Rand
}

// faults returns the faults that the deployment currently supports.
func (s *saboteur) faults() []fault {
	g := s.Gateways[s.random.IntN(len(s.Gateways))].Process
	all := []fault{
		s.killFault("a gateway", g, time.Second),
		pauseFault("a gateway", g, 3*time.Second),
	}
	servers := s.Engine.Servers()
	if len(servers) == 0 {
		return all
	}
	name, downtime := "the store", time.Second
	if len(servers) > 1 {
		name, downtime = "the master", 4*time.Second // exceeds the Sentinels' timeout
	}
	all = append(all, s.killFault(name, servers[0], downtime), pauseFault(name, servers[0], 6*time.Second))
	if s.Network.Cuts() {
		all = append(all, s.cut("a gateway cut off from the store", 8*time.Second, []*deployment.Process{g}, servers))
		all = append(all, s.cut(name+" cut off from all", 6*time.Second, servers[:1], s.peersOf(servers)))
		if len(servers) > 1 {
			all = append(all, s.cut("the master cut off from its replicas and the other Sentinels", 8*time.Second, servers[:1], servers[1:]))
		}
	}
	return all
}

// peersOf returns all servers with which the first server communicates.
func (s *saboteur) peersOf(servers []*deployment.Process) []*deployment.Process {
	peers := append([]*deployment.Process(nil), servers[1:]...)
	for _, g := range s.Gateways {
		peers = append(peers, g.Process)
	}
	return peers
}

func (s *saboteur) killFault(name string, p *deployment.Process, downtime time.Duration) fault {
	return fault{name + " killed", downtime, func() error { p.Kill(); return nil }, p.Start}
}

func pauseFault(name string, p *deployment.Process, lasts time.Duration) fault {
	return fault{name + " paused", lasts, func() error { p.Pause(); return nil }, func() error { p.Resume(); return nil }}
}

func (s *saboteur) cut(name string, lasts time.Duration, some, from []*deployment.Process) fault {
	return fault{name, lasts, func() error {
		for _, a := range some {
			for _, b := range from {
				if err := s.Network.Cut(a, b); err != nil {
					return err
				}
			}
		}
		return nil
	}, s.Network.Heal}
}

// act causes one fault after another until ctx is canceled, with time to recover in between.
func (s *saboteur) act(ctx context.Context, now func() time.Duration) (all []occurredFault, err error) {
	next := 0
	var order []int
	for wait(ctx, 3*time.Second) {
		faults := s.faults()
		if next == len(order) {
			order, next = s.random.Perm(len(faults)), 0
		}
		f := faults[order[next]%len(faults)]
		next++
		h := occurredFault{name: f.name, begin: now()}
		if err := f.begin(); err != nil {
			return all, fmt.Errorf("%s: %w", f.name, err)
		}
		wait(ctx, f.lasts)
		if err := f.end(); err != nil {
			return all, fmt.Errorf("%s, ending: %w", f.name, err)
		}
		h.end = now()
		all = append(all, h)
		wait(ctx, 3*time.Second)
	}
	return all, nil
}

// wait waits for d. It returns false if ctx is canceled earlier.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
