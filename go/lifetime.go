package confide

import (
	"errors"
	"sync"
	"time"
)

var errOldEvidence = errors.New("evidence of this connection is too old: wanted a new connection")

// lifetime ends a connection when its evidence is too old: at once while it is idle, and after the answer while a
// request is under way.
type lifetime struct {
	mutex  sync.Mutex
	timer  *time.Timer
	close  func() error
	isOver bool
	isBusy bool
	// The number of requests that have begun. The end of one may be reported after the next has begun.
	request uint64
}

func (l *lifetime) start(age time.Duration, close func() error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.close = close
	l.timer = time.AfterFunc(age, func() { l.expire() })
}

func (l *lifetime) expire() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.isOver = true
	if !l.isBusy {
		l.close()
	}
}

// begin notes that a request begins, unless the evidence is too old for it. It returns the request's number.
func (l *lifetime) begin() uint64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.isBusy = !l.isOver
	l.request++
	return l.request
}

// finish notes that the connection is idle again after the request with this number.
func (l *lifetime) finish(request uint64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if request != l.request {
		return
	}
	l.isBusy = false
	if l.isOver {
		l.close()
	}
}

func (l *lifetime) check() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.isOver && !l.isBusy {
		return errOldEvidence
	}
	return nil
}

func (l *lifetime) end() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.timer.Stop()
}
