package dispatch

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// PeersOptions are those of [Peers]. All are required.
type PeersOptions struct {
	// End calls [State.End] of all states of this process.
	End func(Ending)

	// Tell makes all peers hear a message: at once, or when they hear again, within its lifetime. The id is a new one.
	Tell func(ctx context.Context, id string, message []byte, lifetime time.Duration) error

	// Logger logs that more is ended than was asked for.
	Logger *slog.Logger
}

// Peers are the other processes in front of the same servers. What ends here ends there too, and the other way round. Make
// them with [NewPeers]. They are safe for concurrent use.
//
// Each message has an id and lives for ten minutes. A process that hears again after a pause ends what it has not heard of
// yet, and all if the pause was longer. It sends again what could not be sent, and has all end everywhere if a message of
// its own has been lost.
type Peers struct {
	options PeersOptions
	sending chan struct{} // has room for who sends a message

	mu    sync.Mutex
	next  *message
	down  bool // the last message could not be sent: nobody waits for the next
	sent  []sentMessage
	known boundedcache.Cache[string, struct{}] // ids of messages that were heard; to hear one again does no harm
	heard time.Time                            // all that was sent before this is known
}

// message is what is sent next. Who waits for it has added to it.
type message struct {
	endings []Ending
	done    bool
}

type sentMessage struct {
	id string
	at time.Time
}

const (
	messageLifetime = 10 * time.Minute
	messageMargin   = time.Minute // by which a lifetime may be off
	sendTimeout     = 3 * time.Second
	maxEndings      = 100 // in a message, or to apply one by one; instead of more, all end
	maxText         = 32 << 10
	maxKnownIDs     = 50_000
	maxSent         = 1000 // that are looked for; if any was lost, so were the latest
)

// NewPeers returns peers that have heard of all that was sent until now: nothing may be stored that was made before.
func NewPeers(o PeersOptions) *Peers {
	p := &Peers{options: o, sending: make(chan struct{}, 1), next: new(message), heard: time.Now()}
	p.known.MaxEntries = maxKnownIDs
	return p
}

// Announce tells the peers what has ended here. It returns when they are told, or cannot be told now.
func (p *Peers) Announce(e Ending) {
	p.mu.Lock()
	m := p.next
	m.add(e)
	p.mu.Unlock()
	p.sending <- struct{}{}
	defer func() { <-p.sending }()
	p.mu.Lock()
	ready := !m.done && !p.down
	p.mu.Unlock()
	if ready {
		p.send()
	}
}

// send sends what all have added meanwhile. What cannot be sent stays for the next message. Only one at a time may call it.
func (p *Peers) send() {
	id := rand.Text()
	p.mu.Lock()
	m := p.next
	p.next = new(message)
	p.known.Put(id, struct{}{}, 1)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout) // the client may have gone
	defer cancel()
	err := p.options.Tell(ctx, id, m.text(), messageLifetime)
	p.mu.Lock()
	defer p.mu.Unlock()
	m.done, p.down = true, err != nil
	if err != nil {
		p.next.add(m.endings...)
		return
	}
	if p.sent = append(p.sent, sentMessage{id, time.Now()}); len(p.sent) > maxSent {
		p.sent = slices.Delete(p.sent, 0, maxSent/2)
	}
}

// News are messages, in the order in which they were sent.
type News struct {
	// Whole says that there are no others.
	Whole bool

	// Messages are by id what was told.
	Messages []Message

	// Asked is when they were asked for: all that were sent before have been heard now.
	Asked time.Time
}

// Message is what a peer, or this process, told.
type Message struct {
	ID   string // as given to Tell
	Text []byte // likewise
}

// Hear ends what peers have ended. Call it for all news, even without messages, from which it learns that the peers can be
// told again. It does not wait for them.
func (p *Peers) Hear(n News) {
	ended, unsent := p.learn(n)
	for _, e := range ended {
		p.options.End(e)
	}
	if !unsent {
		return
	}
	select {
	case p.sending <- struct{}{}:
		go func() {
			defer func() { <-p.sending }()
			p.send()
		}()
	default: // it is being sent
	}
}

// learn returns what has ended, and whether there is something to send.
func (p *Peers) learn(n News) (ended []Ending, unsent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pause := n.Asked.Sub(p.heard); pause > messageLifetime-messageMargin {
		p.options.Logger.Info("cached expansions removed: it is not known what other gateways removed meanwhile", "unheard", pause.Round(time.Second))
		ended = []Ending{{}}
	}
	ids := make(map[string]bool, len(n.Messages))
	for _, m := range n.Messages {
		ids[m.ID] = true
		if _, known := p.known.Get(m.ID); !known {
			p.known.Put(m.ID, struct{}{}, 1)
			ended = appendEndings(ended, endingsOf(m.Text)...)
		}
	}
	if n.Whole && p.lost(ids, n.Asked) {
		p.options.Logger.Warn("cached expansions are removed everywhere: the store has lost what this gateway told the others")
		p.next.add(Ending{})
	}
	if n.Asked.After(p.heard) {
		p.heard = n.Asked
	}
	p.down = false
	return ended, len(p.next.endings) > 0
}

// lost reports whether a message of this process, that should be among all there are, is not. It forgets the others.
func (p *Peers) lost(there map[string]bool, asked time.Time) (lost bool) {
	p.sent = slices.DeleteFunc(p.sent, func(m sentMessage) bool {
		over := asked.Sub(m.at) > messageLifetime-messageMargin
		gone := !over && m.at.Before(asked) && !there[m.id]
		lost = lost || gone
		return over || gone
	})
	return lost
}

func (m *message) add(endings ...Ending) { m.endings = appendEndings(m.endings, endings...) }

// appendEndings appends endings, or makes all of them one.
func appendEndings(to []Ending, more ...Ending) []Ending {
	if to = append(to, more...); len(to) > maxEndings || slices.ContainsFunc(to, Ending.isAll) {
		return []Ending{{}}
	}
	return to
}

func (m *message) text() []byte {
	text, err := json.Marshal(m.endings)
	if err != nil || len(text) > maxText { // err: a canonical that is not UTF-8
		return []byte("[{}]")
	}
	return text
}

// endingsOf reads a message. What cannot be read, as of a later version, ends all.
func endingsOf(text []byte) (list []Ending) {
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
		return []Ending{{}}
	}
	return list
}
