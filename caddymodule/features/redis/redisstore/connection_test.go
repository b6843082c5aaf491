package redisstore

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// If Sentinels disagree, the master with the highest epoch wins.
func TestSentinels(t *testing.T) {
	t.Parallel()
	old, next := master{"old:6379", 3}, master{"next:6379", 4}
	for _, tt := range []struct {
		name     string
		current  master
		reported []master
		want     master
	}{
		{"all agree", master{}, []master{old, old, old}, old},
		{"one knows of a failover", old, []master{old, next, old}, next},
		{"most were cut off", old, []master{next}, next},
		{"those that know of it do not answer", next, []master{old}, next},
		{"most were set up anew", next, []master{old, old}, old},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &sentinels{nodes: make([]*redis.SentinelClient, 3), current: tt.current}
			if got, err := s.chooseMaster(tt.reported, nil); err != nil || got != tt.want || s.current != tt.want {
				t.Errorf("the master is %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// If no Sentinel reports the master, the error contains the reasons.
func TestNoSentinel(t *testing.T) {
	t.Parallel()
	s, refused := &sentinels{masterName: "gateways", nodes: make([]*redis.SentinelClient, 1)}, errors.New("refused")
	if _, err := s.chooseMaster(nil, []error{refused}); !errors.Is(err, refused) {
		t.Errorf("no Sentinel answers: %v", err)
	}
}
