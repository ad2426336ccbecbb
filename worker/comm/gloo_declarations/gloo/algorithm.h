// Named by ProcessGroupGloo.hpp; nothing of it is used there.
#pragma once
